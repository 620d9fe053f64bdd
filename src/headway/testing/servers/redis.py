"""Redis with an append-only file, one numbered database for each test."""

import socket

from headway.testing.servers.loopback import HOST
from headway.testing.servers.server import Server, ServerError, missing_program

_DATABASES = 10_000


class Redis(Server):
    """Redis that keeps every answered write when it is killed (not when the machine dies)."""

    name = "Redis"

    def __init__(self) -> None:
        super().__init__()
        self._used_databases = 0

    @classmethod
    def _missing(cls) -> str | None:
        return missing_program(cls.name, "redis-server", "redis-server")

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def create_database(self) -> str:
        """Give the URL of a database that no one used yet; scripts and channels stay shared."""
        self._used_databases += 1
        if self._used_databases >= _DATABASES:
            raise ServerError(f"all {_DATABASES} databases of this Redis are used. Start another.")
        return f"redis://{HOST}:{self.port}/{self._used_databases}"

    def _command(self) -> list[str]:
        command = ["redis-server", "--bind", HOST, "--port", str(self.port), "--daemonize", "no"]
        command += ["--dir", str(self.folder.path), "--databases", str(_DATABASES)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        # DEBUG lets a test make the server slow or hang.
        return [*command, "--enable-debug-command", "yes"]

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(self.address, timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                # While it reads its file back it answers -LOADING.
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
