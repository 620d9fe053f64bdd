"""A question at the terminal, which Ctrl-C ends at once."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from headway.apps.cli.codes import INTERRUPTED

_ANSWERS = {"y": True, "yes": True, "n": False, "no": False, "": False}


def confirmed(question: str) -> bool:
    """Ask a person, in the middle of a command of which nothing is done yet."""
    try:
        with _woken_by_signals() as woken:
            while True:
                typer.echo(f"{question} [y/N]: ", nl=False, err=True)
                line = _line(woken)
                if not line:
                    typer.echo(err=True)
                answer = _ANSWERS.get(line.strip().lower())
                if answer is not None:
                    return answer
                typer.echo("Say y or n.", err=True)
    except KeyboardInterrupt:
        typer.echo("\nstopped: nothing was changed", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _line(woken: int) -> str:
    """Read what is typed; nothing, if the terminal is at its end."""
    while True:
        ready, _, _ = select.select([sys.stdin, woken], [], [])
        if woken in ready:
            os.read(woken, 100)
        elif ready:
            return sys.stdin.readline()


@contextmanager
def _woken_by_signals() -> Iterator[int]:
    """Let Ctrl-C be raised here; give what can be read when it, or any signal, has come.

    An event loop that runs would only note it, and hear of it when the answer is there. And one
    that comes just before a read begins would not end the read.
    """
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    wakes = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    try:
        yield reads
    finally:
        signal.set_wakeup_fd(wakes)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        os.close(reads)
        os.close(writes)
