"""A fair way to SQLite's one write lock, for all threads of all processes.

SQLite itself lets whoever asks first after a commit have the lock, and that is nearly always the
one who has just committed: others can wait for seconds. Here everybody passes two gates. Who has
the gate "next" is the only one to wait for the gate "now"; so whoever has just committed queues
behind those who wait. Both are locks on files beside the database; a process that dies lets go.

The gates only make it fair: SQLite's lock is what keeps it right. So nobody waits for them for
ever. Who finds a gate shut for long, because a process was stopped there, goes past it.
"""

import os
import sys
import threading
from contextlib import suppress
from types import TracebackType

from headway.adapters.sqlite.connection import Location
from headway.ports import fork

if sys.platform != "win32":
    import fcntl

_SHORTEST = 0.000_2
_LONGEST = 0.002
_PATIENCE = 2.0


class Turnstile:
    """Entered for each write transaction; one object for each thread that writes."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._gates: tuple[int, int] | None = None
        self._pause = threading.Event()  # never set: it only gives waits
        fork.own(self)

    def __enter__(self) -> None:
        if sys.platform == "win32":  # no such locks there: SQLite's own waiting has to do
            return
        if self._gates is None:
            self._gates = self._gate("-next"), self._gate("-now")
        following, now = self._gates
        self._lock(following)
        try:
            self._lock(now)
        finally:
            fcntl.flock(following, fcntl.LOCK_UN)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if sys.platform != "win32" and self._gates is not None:
            fcntl.flock(self._gates[1], fcntl.LOCK_UN)

    def in_child(self) -> None:
        # A lock of these files is that of all who have the descriptor: a child would keep it shut.
        fork.close_in_child(self._gates or ())

    def close(self) -> None:
        gates, self._gates = self._gates, None
        for gate in gates or ():
            os.close(gate)

    def _gate(self, suffix: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        path = self._location.beside(suffix)
        gate = os.open(path, flags, 0o666)
        with suppress(OSError):  # as SQLite does for its own files: who may write one, may all
            mode = self._location.path.stat().st_mode & 0o666
            if os.fstat(gate).st_uid == os.geteuid():
                os.fchmod(gate, mode)
        return gate

    def _lock(self, gate: int) -> None:
        # Waiting in the kernel would be simpler, and could not be given up.
        waited, pause = 0.0, _SHORTEST
        while waited < _PATIENCE:
            try:
                fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._pause.wait(pause)
                waited += pause
                pause = min(pause * 1.5, _LONGEST)
            else:
                return
