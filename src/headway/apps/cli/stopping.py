"""Ctrl-C and SIGTERM: a command says how far it got, also while it is still being loaded."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headway.apps.cli.codes import INTERRUPTED, TERMINATED


@contextmanager
def nothing_begun() -> Iterator[None]:
    """Say so when Ctrl-C comes meanwhile, and end the process."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("stopped: nothing was begun\n")
        sys.exit(INTERRUPTED)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Have SIGTERM end a command as Ctrl-C does, with an exit code of its own.

    Commands that run until they are told to stop have their own handlers.
    """
    terminated = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal terminated
        terminated = True
        # An event loop hears of SIGINT in its own way. A shell has it ignored in the background.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except SystemExit as ended:
        if terminated and ended.code == INTERRUPTED:
            sys.exit(TERMINATED)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
