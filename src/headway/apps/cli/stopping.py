"""A word for whoever presses Ctrl-C before a command has begun: imports take their time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headway.apps.cli.codes import INTERRUPTED


@contextmanager
def nothing_begun() -> Iterator[None]:
    """Say so when Ctrl-C comes meanwhile, and end the process."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("stopped: nothing was begun\n")
        sys.exit(INTERRUPTED)
