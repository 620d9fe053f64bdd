"""What a worker is told to do, and the command line that says it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from headway.apps.cli.logs import LogFormat
from headway.assembly.settings import GIVEN_BUS


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of `headway run`, as far as they are about one process."""

    services: list[str]
    bus: str | None = None
    concurrency: int
    prefetch: int | None = None
    grace: float
    """In seconds."""
    requeue_at_start: bool = False
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    log_format: LogFormat = LogFormat.AUTO
    as_long_as_stdin: bool = False
    """Stop when the other end of the standard input is closed."""


def command(order: Order) -> list[str]:
    """Give the command line of a process that carries out an order.

    The URL of the bus, which may hold a password, is not in it: whatever this process starts or
    becomes finds it in its environment.
    """
    # Set, not read. What an order of somebody else's left there is not meant.
    os.environ[GIVEN_BUS] = order.bus or ""  # noqa: TID251
    order = msgspec.structs.replace(order, bus=None)
    # The worker finds modules where this process does: in the current folder only if it does.
    here = sys.path[:1] in ([""], [str(Path.cwd())])
    options = [*_of_python(), *([] if here else ["-P"])]
    words = msgspec.json.encode(order).decode()
    return [sys.executable, *options, "-m", "headway.apps.worker", words]


def can_become_another() -> bool:
    """Say whether this process can go on as another program without anybody noticing."""
    if sys.platform == "win32":  # where the shell would take it for ended
        return False
    # A debugger, or a measurement of coverage or of time, would lose what it watches.
    watched = sys.gettrace() is not None or sys.getprofile() is not None
    return bool(sys.executable) and not getattr(sys, "frozen", False) and not watched


def become(words: list[str]) -> NoReturn:
    """Go on as another program: the same process, with its input and output."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(words[0], words)  # noqa: S606 (there is no shell in it)


def _of_python() -> list[str]:
    """Give the options that this Python was started with, such as -X dev or -W error."""
    # Private, and what the standard library itself asks when it starts another Python.
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined] # noqa: SLF001
