"""Running somebody in a process of its own, and hearing from it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

_PATIENCE = 180


def run_child(
    module: str,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    package: str = "benchmarks.rabbitmq",
) -> dict[str, Any]:
    """Run a module of a package to its end and give what it reported."""
    command = [sys.executable, "-m", f"{package}.{module}", *map(str, arguments)]
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        check=False,
        text=True,
        timeout=_PATIENCE,
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"{module} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    reported: dict[str, Any] = json.loads(lines[-1])
    return reported


def report(**figures: object) -> None:
    """Say what was measured; the last line that a process writes counts."""
    print(json.dumps(figures), flush=True)
