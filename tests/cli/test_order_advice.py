"""`headway order` and `Resequencer` have one default name; printed advice runs as it is shown."""

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway import Resequencer
from headway.order import OnGap, SequenceSettings, Turn

NAMES = [None, "orders", "night shift"]
KEYS = ["sensor-7", "two words", "it's", "-dash", "line\nbreak"]
WAITS = SequenceSettings(on_gap=OnGap.PARK)
PARKS_AT_ONCE = SequenceSettings(on_gap=OnGap.PARK, breaker=1)


def hold(url: str, name: str | None, key: str, settings: SequenceSettings = WAITS) -> None:
    """Apply a first result, and hold one behind a gap."""
    named: dict[str, Any] = {} if name is None else {"name": name}

    async def offer() -> None:
        async with Resequencer(_apply, url=url, settings=settings, **named) as order:
            await order.offer(key, 1)
            assert await order.offer(key, 3) == "held"

    asyncio.run(offer())


def _apply(_work: Turn) -> None:
    """Nothing to do."""


def run(folder: Path, line: str) -> "subprocess.CompletedProcess[str]":
    """Run a line as a person pastes it, where `headway` is on the path."""
    (folder / "bin").mkdir(exist_ok=True)
    script = folder / "bin" / "headway"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m headway.apps.cli "$@"\n')
    script.chmod(0o755)
    (folder / "shop.py").write_text(
        "from headway.core.sequence_settings import OnGap, SequenceSettings\n"
        "patience = SequenceSettings(on_gap=OnGap.PARK)\n"
        "parked = SequenceSettings(on_gap=OnGap.PARK, breaker=1)\n"
    )
    return subprocess.run(
        ["/bin/bash", "-c", line],
        env={"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def advice(said: str) -> list[str]:
    """Give the commands that a text tells people to type."""
    return re.findall(r"^\s*(headway order .+?)\s*$", said, re.MULTILINE)


def test_without_a_name_the_command_shows_what_the_library_keeps(tmp_path: Path) -> None:
    hold(f"sqlite:///{tmp_path}/headway.db", None, "sensor-7")
    done = run(tmp_path, "headway order status")
    assert (done.returncode, "sensor-7" in done.stdout) == (0, True), done


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", KEYS)
def test_advice_can_be_pasted(tmp_path: Path, name: str | None, key: str) -> None:
    hold(f"sqlite:///{tmp_path}/shop.db", name, key)
    typed = "" if name is None else f" --name {shlex.quote(name)}"
    typed += " --sequences sqlite:///shop.db"
    status = run(tmp_path, f"headway order status{typed}")
    (explain,) = advice(status.stdout)
    assert "KEY" not in explain
    explained = run(tmp_path, explain)
    assert explained.returncode == 0, explained
    assert "waiting" in explained.stdout
    unknown = run(tmp_path, f"headway order explain nosuch{typed}")
    (again,) = advice(unknown.stderr)
    assert advice(run(tmp_path, again).stdout) == [explain]


def test_advice_for_a_parked_key_drains_it(tmp_path: Path) -> None:
    hold(f"sqlite:///{tmp_path}/shop.db", "orders", "sensor-7", PARKS_AT_ONCE)
    where = "--name orders --sequences sqlite:///shop.db --settings shop:parked"
    said = run(tmp_path, f"headway order explain sensor-7 {where}").stdout
    assert "parked" in said
    (drain,) = advice(said)
    done = run(tmp_path, f"{drain} --yes")
    assert (done.returncode, "1 of 1 key drained" in done.stdout) == (0, True), done


def test_a_wrong_name_is_answered_with_commands_for_the_right_ones(tmp_path: Path) -> None:
    for name in ("orders", "night shift"):
        hold(f"sqlite:///{tmp_path}/shop.db", name, "a")
    done = run(tmp_path, "headway order status --sequences sqlite:///shop.db")
    commands = advice(done.stdout)
    assert len(commands) == 2
    for command in commands:
        assert "waiting" in run(tmp_path, command).stdout


def test_a_password_is_never_part_of_the_advice(tmp_path: Path, redis_database: str) -> None:
    hold(redis_database, "orders", "a")
    secret = redis_database.replace("redis://", "redis://default:s3cret-pw@", 1)
    done = run(tmp_path, f"headway order status --name orders --sequences {secret}")
    assert "s3cret-pw" not in done.stdout + done.stderr
    assert advice(done.stdout) == ["headway order explain a --name orders --sequences URL"]
