"""Keep the log readable when equal failures come by the thousand.

The first of them are written in full. From then on one line in each interval says how many more
came, and shows one of them, until there are few again. No failure goes uncounted: a summary is
written when its interval is over, whether or not another failure comes, and when the process ends.
"""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headway.core.failure import Failure
from headway.ports import fork

IN_FULL = 10
"""So many equal lines of one interval are written as they are."""
INTERVAL = 10.0
"""Seconds between two summaries of equal lines."""
_STANDARD = (threading.__file__.removesuffix("threading.py"), "<")
_INSTALLED = ("/site-packages/", "/dist-packages/")
"""Where libraries are. `sysconfig` knows better, and is slow to load."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line before it is written."""

    level: int
    text: str
    """With a place for each value, as `logging` has it."""
    values: tuple[Any, ...]
    fields: dict[str, Any]
    """What equal lines have in common; a line that is written in full has more."""


@dataclass(slots=True)
class _Equal:
    """Equal lines of one interval."""

    since: float
    in_full: int
    """So many more may be written as they are."""
    left_out: int = 0
    line: Line | None = None
    """One of those that were left out."""


class Repeats:
    """Counts equal lines of one logger, and writes the summaries.

    Args:
        logger: Where summaries go.
        now: Tells the time in seconds.
        later: Calls a function once, after so many seconds.
    """

    def __init__(
        self,
        logger: logging.Logger,
        now: Callable[[], float] | None = None,
        later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        self._log = logger
        self._now = now or time.monotonic
        self._later = later or self._start_timer
        self._timer: threading.Thread | None = None
        self._known: dict[Hashable, _Equal] = {}
        self._next = 0.0
        """When the first interval is over."""
        self._lock = threading.RLock()  # the message of an exception is code of the user's
        fork.own(self)

    def leaves_out(self, key: Hashable, line: Callable[[], Line]) -> bool:
        """Count one more of these; True: the next summary speaks of it, so do not write it."""
        with self._lock:
            now = self._now()
            due = self._take_due(now)
            equal = self._known.get(key)
            if equal is None:
                equal = self._known[key] = _Equal(now, IN_FULL)
            if equal.in_full:
                equal.in_full -= 1
                is_left_out = False
            else:
                is_left_out = True
                equal.left_out += 1
                if equal.left_out == 1:
                    equal.line = line()
                    self._later(INTERVAL, self._write_due)
        self._write(due)
        return is_left_out

    def flush(self) -> None:
        """Write the summaries of all that was left out so far."""
        with self._lock:
            now = self._now()
            left = [(each, now) for each in self._known.values() if each.left_out]
            self._known.clear()
        self._write(left)

    def in_child(self) -> None:
        """Forget, in a forked child, what the parent will say itself."""
        self._lock = threading.RLock()
        self._known = {}
        self._timer = None
        fork.own(self)

    def _write_due(self) -> None:
        with self._lock:
            due = self._take_due(self._now())
            self._timer = None
            if any(each.left_out for each in self._known.values()):
                self._later(INTERVAL, self._write_due)
        self._write(due)

    def _take_due(self, now: float) -> list[tuple[_Equal, float]]:
        """Begin the next interval of what is over; forget what did not come often."""
        if now < self._next:
            return []
        over = [(key, each) for key, each in self._known.items() if now - each.since >= INTERVAL]
        for key, each in over:
            if each.left_out > IN_FULL:
                self._known[key] = _Equal(now, 0)
            else:
                del self._known[key]
        self._next = min((each.since for each in self._known.values()), default=now) + INTERVAL
        return [(each, now) for _, each in over if each.left_out]

    def _write(self, summaries: list[tuple[_Equal, float]]) -> None:
        for equal, now in summaries:
            line, seconds = equal.line, max(now - equal.since, 0.0)
            assert line is not None  # noqa: S101 (it came with the first that was left out)
            self._log.log(
                line.level,
                "%d more in %.0f s like this one: %s",
                equal.left_out,
                seconds,
                line.text % line.values,
                extra=line.fields | {"count": equal.left_out, "seconds": round(seconds, 3)},
            )

    def _start_timer(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None and self._timer.is_alive():
            return
        if self._timer is None:
            atexit.unregister(self.flush)
            atexit.register(self.flush)
        self._timer = timer = threading.Timer(seconds, call)
        timer.daemon = True
        with suppress(RuntimeError):  # the process ends: then `flush` writes them
            timer.start()


def kind_of(failure: Failure) -> Hashable:
    """Say what makes two failures equal: their rule, their type, and where they were raised."""
    kind = type(failure.error)
    return failure.diagnosis.rule, kind.__module__, kind.__qualname__, _place(failure.error)


def raised_at(error: BaseException) -> str:
    """Name file, line and function that raised an error: `shop.py:12 charge`."""
    file, line, function = _place(error)
    name = file.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{line} {function}" if name else "an unknown line"


def _place(error: BaseException) -> tuple[str, int, str]:
    """Give file, line and function of the innermost frame that is not a library's."""
    place, at = ("", 0, ""), error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        name = code.co_filename
        if not name.startswith(_STANDARD) and not any(each in name for each in _INSTALLED):
            place = name, at.tb_lineno, code.co_qualname.replace("<locals>.", "")
        at = at.tb_next
    return place
