"""What all servers have in common: start, stop, kill, start again on the same port and data."""

import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, Self

from headway.testing.servers.folder import OwnedFolder
from headway.testing.servers.loopback import HOST, free_port
from headway.testing.servers.process import Process, wait_until

_LOG_TAIL = 30


class ServerError(RuntimeError):
    """A server is not installed, did not get ready, or refused what the test asked of it."""


class Server(ABC):
    """One server with a port and a folder of its own.

    `with` starts it and in the end kills it and removes its folder. Inside, `kill()` or `stop()`
    and then `start()` gives the same server on the same port with the data it kept.
    """

    name: ClassVar[str]
    _stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    _ready_within: ClassVar[timedelta] = timedelta(seconds=60)
    _stopped_within: ClassVar[timedelta] = timedelta(seconds=30)

    def __init__(self) -> None:
        if missing := self.missing():
            raise ServerError(missing)
        self.port = free_port()
        self.folder = OwnedFolder(self.name)
        self._process: Process | None = None
        self._prepared = False

    @classmethod
    def missing(cls) -> str | None:
        """Say what the server lacks here and what installs it, or None if it can be started."""
        if shutil.which("setpriv") is None:
            return f"{cls.name} needs setpriv to be started. Install it: apt-get install util-linux"
        return cls._missing()

    @property
    @abstractmethod
    def url(self) -> str:
        """Where a client reaches the server."""

    @property
    def address(self) -> tuple[str, int]:
        """Where the server listens, as a proxy in front of it wants to know it."""
        return HOST, self.port

    def start(self) -> None:
        """Start the server, again on the same port and data, and wait until it answers."""
        if self._process is not None and self._process.is_running():
            raise ServerError(f"{self.name} runs already (pid {self._process.pid}). Kill it first.")
        if not self._prepared:
            self._prepare()
            self._prepared = True
        process = self._process = self._spawn(self._command())
        if not wait_until(lambda: not process.is_running() or self._is_ready(), self._ready_within):
            process.kill()
            raise self._error(f"was not ready within {self._ready_within}")
        if not process.is_running():
            raise self._error("ended while it was starting")

    def stop(self) -> None:
        """Let the server shut down in order."""
        process = self._process
        if process is not None and not process.end(self._stop_signal, self._stopped_within):
            process.kill()
            raise self._error(f"did not stop within {self._stopped_within} and was killed")

    def kill(self) -> None:
        """Kill the server and its children as a crash would; they are gone when this returns."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the server for good and remove its folder."""
        self.kill()
        self.folder.remove()

    def pids(self) -> list[int]:
        """Give the pids of all processes of the server."""
        return [] if self._process is None else self._process.tree()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    @classmethod
    @abstractmethod
    def _missing(cls) -> str | None: ...

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _is_ready(self) -> bool: ...

    def _prepare(self) -> None:  # noqa: B027, most servers need nothing
        """Make what has to be there before the first start."""

    def _environment(self) -> dict[str, str]:
        # Nothing of the developer's environment (PGHOST, RABBITMQ_*) may reach the server.
        path = os.environ.get("PATH", os.defpath)
        return {"PATH": path, "HOME": str(self.folder.path), "LC_ALL": "C.UTF-8"}

    def _user(self) -> str | None:
        """The user to run as; None is the one who runs the tests."""
        return None

    def _spawn(self, command: Sequence[str]) -> Process:
        log = self.folder.path / "log"
        return Process(command, log=log, environment=self._environment(), user=self._user())

    def _run(self, command: Sequence[str]) -> str:
        """Run a tool of the server to its end, and give what it said."""
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder.path,
            env=self._environment(),
            user=self._user(),
            group=self._user(),
            check=False,
            text=True,
            timeout=self._ready_within.total_seconds(),
        )
        if done.returncode != 0:
            raise ServerError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout}")
        return done.stdout

    def _error(self, what: str) -> ServerError:
        log = self.folder.path / "log"
        tail = log.read_text(errors="replace").splitlines()[-_LOG_TAIL:] if log.exists() else []
        said = "\n  ".join(tail) or "(nothing)"
        return ServerError(f"{self.name} on port {self.port} {what}. Its log ends:\n  {said}")


def missing_program(server: str, program: str, package: str) -> str | None:
    """Say that a program is not on the PATH and which Debian package brings it."""
    if shutil.which(program) is not None:
        return None
    return f"{server} needs the program {program!r}. Install it: apt-get install {package}"
