"""Start a child process that cannot outlive the tests, and end it with everything it started."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

_PAUSE = 0.01
_GONE_WITHIN = timedelta(seconds=30)


class Process:
    """A running program in a session of its own, its output in a file."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str],
        user: str | None = None,
    ) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                f"{command[0]} was started in thread {threading.current_thread().name!r}: it would "
                "be killed when that thread ends. Start servers in the main thread."
            )
        with log.open("ab") as output:
            # setpriv asks the kernel to kill the program when we die, however we die. It does what
            # a preexec_fn would, but Python forks safely beside threads (the proxy's) only without.
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env=dict(environment),
                start_new_session=True,
                user=user,
                group=user,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def is_running(self) -> bool:
        return self._child.poll() is None

    def tree(self) -> list[int]:
        """Give the pid of the program and of all that descend from it."""
        return _tree(self.pid) if self.is_running() else []

    def kill(self) -> None:
        """Kill the program and its descendants at once; they are gone when this returns."""
        if not self.is_running():
            return
        # Stopped first, so that it starts nothing between the look at its children and the kill.
        os.kill(self.pid, signal.SIGSTOP)
        tree = self.tree()
        for pid in tree:
            _send(pid, signal.SIGKILL)
        self._reap(tree)

    def end(self, how: signal.Signals, within: timedelta) -> bool:
        """Ask the program to end; say whether it did in time."""
        tree = self.tree()
        _send(self.pid, how)
        if not wait_until(lambda: not self.is_running(), within):
            return False
        self._reap(tree)
        return True

    def _reap(self, tree: Sequence[int]) -> None:
        self._child.wait()
        # A restart on the same data is refused while an orphan still holds it (PostgreSQL's
        # shared memory), so the descendants have to be gone too.
        alive = [pid for pid in tree if is_alive(pid)]
        if not wait_until(lambda: not any(map(is_alive, alive)), _GONE_WITHIN):
            raise RuntimeError(f"processes {alive} are still alive {_GONE_WITHIN} after the end")


def is_alive(pid: int) -> bool:
    """Say whether the process runs; a zombie does not."""
    state_and_parent = _state_and_parent(pid)
    return state_and_parent is not None and state_and_parent[0] not in "ZX"


def wait_until(fact: Callable[[], bool], within: timedelta) -> bool:
    """Look again and again until the fact holds; say whether it did before the time was over."""
    deadline = time.monotonic() + within.total_seconds()
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _state_and_parent(int(entry.name))):
            children.setdefault(found[1], []).append(int(entry.name))
    tree = [root]
    for pid in tree:  # grows while it is walked
        tree.extend(children.get(pid, ()))
    return tree


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name, in parentheses, may hold spaces and parentheses itself.
    state, parent = stat.rpartition(")")[2].split()[:2]
    return state, int(parent)


def _send(pid: int, what: signal.Signals) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return  # gone already, which is what was asked for
