"""The terminal that a process was started in, which may be closed."""

import os

_STDIN = 0


class Terminal:
    """Remembers whether there was one: closing it means that what runs in it should end."""

    def __init__(self) -> None:
        self._was_there = os.isatty(_STDIN)

    def is_gone(self) -> bool:
        """Say whether there was a terminal and is none any more."""
        if not self._was_there:
            return False
        try:
            os.tcgetpgrp(_STDIN)
        except OSError:
            return True
        return False
