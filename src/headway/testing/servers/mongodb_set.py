"""MongoDB as a replica set of three, of which one member lags behind: what it shows is old."""

import secrets
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from headway.testing.servers.loopback import HOST
from headway.testing.servers.mongodb import SET, MongoDB
from headway.testing.servers.process import wait_until
from headway.testing.servers.server import ServerError

_READY_WITHIN = timedelta(seconds=60)


class _Member(MongoDB):
    """One of several; the set is made when all of them answer."""

    def _is_ready(self) -> bool:
        return self.command("ping") is not None


class MongoReplicaSet:
    """A primary, a secondary, and a secondary that shows everything later.

    Args:
        lag: By how much.
    """

    def __init__(self, lag: timedelta) -> None:
        self._lag = lag
        self.members = [_Member() for _ in range(3)]

    def create_database(self) -> str:
        """Give the URL of a database that no one used yet, through the whole set."""
        return self._url(f"test_{secrets.token_hex(6)}")

    def from_the_laggard(self, url: str) -> str:
        """Give the URL of the same database on the member that lags behind.

        Straight to it: the others name no member to clients that is late on purpose.
        """
        database = urlsplit(url).path
        laggard = f"mongodb://{HOST}:{self.members[2].port}{database}"
        return f"{laggard}?directConnection=true&readPreference=secondary"

    def _url(self, database: str) -> str:
        hosts = ",".join(f"{HOST}:{member.port}" for member in self.members)
        return f"mongodb://{hosts}/{database}?replicaSet={SET}"

    def _config(self) -> dict[str, Any]:
        hosts = [{"_id": n, "host": f"{HOST}:{m.port}"} for n, m in enumerate(self.members)]
        laggard = {
            **hosts[2],
            "priority": 0,
            "secondaryDelaySecs": round(self._lag.total_seconds()),
        }
        return {"_id": SET, "members": [hosts[0], {**hosts[1], "priority": 0.5}, laggard]}

    def _is_whole(self) -> bool:
        status = self.members[0].command("replSetGetStatus") or {}
        states = sorted(member["stateStr"] for member in status.get("members", ()))
        return states == ["PRIMARY", "SECONDARY", "SECONDARY"]

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.start()
            self.members[0].command("replSetInitiate", self._config())
            if not wait_until(self._is_whole, _READY_WITHIN):
                raise ServerError(f"The replica set was not whole within {_READY_WITHIN}")  # noqa: TRY301
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.close()
