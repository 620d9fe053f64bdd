"""What is refused at the first contact."""

import asyncio
import time

import pytest

from headway import ConfigurationError
from headway.testing.engines import mongodb_store
from headway.testing.servers import MongoDB
from headway.testing.servers.loopback import free_port
from tests.engines.mongodb.site import CLOCK

pytestmark = pytest.mark.server("mongodb")


class Alone(MongoDB):
    """A server that is no member of any set."""

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("--replSet")
        return command[:at] + command[at + 2 :]

    def _is_ready(self) -> bool:
        return self.command("hello") is not None


async def refused(url: str, name: str = "HEADWAY_STORE") -> str:
    async def opened() -> None:
        store = mongodb_store(url, CLOCK, name=name)
        try:
            await store.open()
        finally:
            await store.close()

    with pytest.raises(ConfigurationError) as error:
        await opened()
    assert str(error.value).startswith(f"{name}='mongodb://")
    assert "secret" not in str(error.value)
    return str(error.value)


async def test_a_server_that_cannot_be_used_is_refused_with_the_cure(
    mongodb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Alone() as alone:
        assert "--replSet" in await refused(alone.url, "MONGODB_HOST")
    login = mongodb_database.replace("mongodb://", "mongodb://me:secret@")
    assert "authSource" in await refused(login)
    monkeypatch.setattr("headway.adapters.mongodb.connecting._OLDEST", 999)
    assert "5.0 or newer" in await refused(mongodb_database)


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("/", "database"),
        ("/app?ssll=true", "ssll"),
        ("/app?serverSelectionTimeoutMS=soon", "serverselectiontimeoutms"),
        ("/app?replicaSet=a&directConnection=true&loadBalanced=true", "loadbalanced"),
    ],
)
async def test_a_url_that_cannot_be_used_is_refused(rest: str, why: str) -> None:
    assert why in (await refused(f"mongodb://me:secret@host{rest}")).lower()


async def test_a_server_that_does_not_answer_is_asked_once_in_a_while() -> None:
    url = f"mongodb://me:secret@127.0.0.1:{free_port()}/app?serverSelectionTimeoutMS=1000"
    store = mongodb_store(url, CLOCK)
    took = []
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(ConnectionError, match=r"mongodb://me:\*\*\*@127.*HEADWAY_STORE"):
            await store.open()
        took.append(time.monotonic() - began)
    assert took[0] >= 1 > 2 * took[1]
    await store.close()


async def test_what_is_closed_stays_closed(mongodb_database: str) -> None:
    store = mongodb_store(mongodb_database, CLOCK)
    await store.close()
    with pytest.raises(RuntimeError):
        await store.records.find(["a"])


async def test_many_who_open_a_new_database_at_once_agree(mongodb_database: str) -> None:
    stores = [mongodb_store(mongodb_database, CLOCK) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores for _ in range(3)))
    assert await stores[0].ends.count() == (0, 0)
    for store in stores:
        await store.close()
