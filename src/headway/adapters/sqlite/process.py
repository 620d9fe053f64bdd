"""Who a process is, and whether it is still there.

A process id alone says little: it is given again to others, and means another process in another
container. So the start time of the process, its namespace and the boot of its machine belong to it.
"""

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STATE = 0
_START = 19
"""Where they stand in the status line of a process, after its name."""
_DEAD = frozenset("ZX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, not to be confused with another one of the same id."""

    machine: str
    """This boot of this machine."""
    namespace: str
    pid: int
    started: str
    """Empty where nobody can know."""

    def is_gone(self, observer: "Process") -> bool:
        """Say whether it is certainly gone; False where this observer cannot see it."""
        if (self.machine, self.namespace) != (observer.machine, observer.namespace):
            return False
        if sys.platform == "win32":  # where asking a process like this would end it
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it belongs to another user, so it is there
            pass
        status = _status(self.pid)
        if status is None:
            return False
        # What was killed stays as a zombie until its parent takes note.
        return status[_STATE] in _DEAD or bool(self.started and status[_START] != self.started)


def this_process() -> Process:
    pid = os.getpid()
    status = _status(pid)
    return Process(
        machine=_read("sys/kernel/random/boot_id") or socket.gethostname(),
        namespace=_namespace(),
        pid=pid,
        started=status[_START] if status else "",
    )


def _namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _status(pid: int) -> list[str] | None:
    text = _read(f"{pid}/stat")
    # The name of the program comes second, in brackets, and may hold anything.
    return text.rpartition(")")[2].split() if text else None


def _read(name: str) -> str:
    try:
        return (_PROC / name).read_text().strip()
    except OSError:
        return ""
