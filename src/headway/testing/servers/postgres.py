"""PostgreSQL, one database for each test."""

import os
import secrets
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from headway.testing.servers.loopback import HOST
from headway.testing.servers.server import Server, ServerError

_OWNER = "postgres"


class PostgreSQL(Server):
    """PostgreSQL without passwords. It does not fsync: a kill loses nothing, a power cut would."""

    name = "PostgreSQL"
    _stop_signal = signal.SIGINT  # does not wait for clients to leave, as SIGTERM does

    def __init__(self, *, options: Mapping[str, str] | None = None) -> None:
        """Take server settings by name, such as `{"max_prepared_transactions": "8"}`."""
        super().__init__()
        self._options = {"fsync": "off", "timezone": "UTC", **(options or {})}
        self._data = self.folder.path / "data"

    @classmethod
    def _missing(cls) -> str | None:
        if _programs() is None:
            return f"{cls.name} is not installed. Install it: apt-get install postgresql"
        return None

    @property
    def url(self) -> str:
        return self._url("postgres")

    def create_database(self) -> str:
        """Make an empty database and give its URL."""
        name = f"test_{secrets.token_hex(6)}"
        self._run([self._program("createdb"), *self._connection(), name])
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql://{_OWNER}@{HOST}:{self.port}/{database}"

    def _connection(self) -> list[str]:
        return ["-h", HOST, "-p", str(self.port), "-U", _OWNER]

    def _prepare(self) -> None:
        if user := self._user():
            shutil.chown(self.folder.path, user, user)
        cluster = ["-D", str(self._data), "-U", _OWNER, "-A", "trust", "--no-sync"]
        self._run([self._program("initdb"), *cluster, "-E", "UTF8", "--locale=C.UTF-8"])

    def _command(self) -> list[str]:
        settings = [part for item in self._options.items() for part in ("-c", "=".join(item))]
        address = ["-h", HOST, "-p", str(self.port), "-k", ""]  # no Unix socket
        return [self._program("postgres"), "-D", str(self._data), *address, *settings]

    def _is_ready(self) -> bool:
        try:
            self._run([self._program("pg_isready"), *self._connection()])
        except ServerError:
            return False
        return True

    def _user(self) -> str | None:
        # PostgreSQL refuses to run as root; its package made a user for it.
        return _OWNER if os.geteuid() == 0 else None

    def _program(self, name: str) -> str:
        programs = _programs()
        if programs is None:
            raise ServerError(str(self._missing()))
        return str(programs / name)


def _programs() -> Path | None:
    """Find the folder of the newest PostgreSQL: Debian keeps initdb and postgres off the PATH."""
    installed = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if installed:
        return max(installed, key=lambda path: int(path.parent.name))
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None
