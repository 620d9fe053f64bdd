"""PgBouncer in front of a PostgreSQL."""

import os
import shutil
from typing import Literal

from headway.testing.servers.loopback import HOST, accepts
from headway.testing.servers.postgres import PostgreSQL
from headway.testing.servers.server import Server, missing_program

_OWNER = "postgres"


class PgBouncer(Server):
    """PgBouncer for all databases of one server, without passwords."""

    name = "PgBouncer"

    def __init__(
        self,
        postgres: PostgreSQL,
        *,
        pool_mode: Literal["session", "transaction"] = "transaction",
        pool_size: int = 20,
    ) -> None:
        super().__init__()
        self._postgres = postgres
        self._settings = {"pool_mode": pool_mode, "default_pool_size": str(pool_size)}

    @classmethod
    def _missing(cls) -> str | None:
        return missing_program(cls.name, "pgbouncer", "pgbouncer")

    @property
    def url(self) -> str:
        return self.through(self._postgres.url)

    def through(self, database: str) -> str:
        """Give the URL of a database of the server by way of this pooler."""
        return database.replace(f":{self._postgres.port}/", f":{self.port}/")

    def _prepare(self) -> None:
        if user := self._user():
            shutil.chown(self.folder.path, user, user)
        settings = {
            "listen_addr": HOST,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            **self._settings,
        }
        (self.folder.path / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={HOST} port={self._postgres.port} user={_OWNER}\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )

    def _command(self) -> list[str]:
        return ["pgbouncer", str(self.folder.path / "pgbouncer.ini")]

    def _is_ready(self) -> bool:
        return accepts(self.port)

    def _user(self) -> str | None:
        # PgBouncer refuses to run as root; the package of PostgreSQL made a user for it.
        return _OWNER if os.geteuid() == 0 else None
