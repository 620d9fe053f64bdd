"""What is refused at the first contact, and with which words."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.errors import ServerSelectionTimeoutError

from headway import ConfigurationError
from headway.adapters.mongodb import connecting
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


@pytest.fixture
def alone() -> Iterator[Alone]:
    with Alone() as server:
        yield server


async def refused(url: str, name: str = "HEADWAY_STORE") -> str:
    async def opened() -> None:
        store = mongodb_store(url, CLOCK, name=name)
        try:
            await store.open()
        finally:
            await store.close()

    with pytest.raises(ConfigurationError) as error:
        await opened()
    assert "secret" not in str(error.value)
    return str(error.value)


async def test_a_server_without_transactions_is_refused_with_the_cure(alone: Alone) -> None:
    said = await refused(alone.url, "MONGODB_HOST")
    assert said.startswith(f"MONGODB_HOST='{alone.url}' is not accepted: this server is no member")
    assert "start mongod with --replSet NAME and call rs.initiate()" in said


async def test_a_wrong_password_is_refused_and_not_shown(mongodb_database: str) -> None:
    said = await refused(mongodb_database.replace("mongodb://", "mongodb://me:secret@"))
    assert said.startswith("HEADWAY_STORE='mongodb://me:***@127.0.0.1")
    assert "refuses the login; check user, password and authSource" in said


async def test_a_server_that_is_too_old_is_refused(
    mongodb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_OLDEST", 999)
    said = await refused(mongodb_database)
    assert "is not accepted: this is MongoDB " in said
    assert said.endswith("; use 5.0 or newer")


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("/", "it names no database"),
        ("/app?ssll=true", "Unknown option"),
        ("/app?serverSelectionTimeoutMS=soon", "serverselectiontimeoutms"),
        ("/app?replicaSet=a&directConnection=true&loadBalanced=true", "loadBalanced"),
    ],
)
async def test_a_url_that_cannot_be_used_is_refused(rest: str, why: str) -> None:
    assert why.lower() in (await refused(f"mongodb://me:secret@host{rest}")).lower()


async def test_that_nobody_answers_is_no_matter_of_settings() -> None:
    url = f"mongodb://me:secret@127.0.0.1:{free_port()}/app?serverSelectionTimeoutMS=100"
    store = mongodb_store(url, CLOCK)
    with pytest.raises(ConnectionError) as error:
        await store.open()
    assert re.fullmatch(
        r"mongodb://me:\*\*\*@127\.0\.0\.1:\d+/app\?serverSelectionTimeoutMS=100: "
        r"127\.0\.0\.1:\d+: \[Errno 111\] Connect call failed \('127\.0\.0\.1', \d+\); "
        r"is it running, and is HEADWAY_STORE right\?",
        str(error.value),
    )
    await store.close()


async def test_who_does_not_answer_is_asked_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "_ASKED_ONCE", 0.05)
    asked = 0

    async def check(link: connecting.Link, client: Any) -> None:
        nonlocal asked
        asked += 1
        raise ServerSelectionTimeoutError("db:1: refused")

    monkeypatch.setattr(connecting.Link, "_check", check)
    store = mongodb_store("mongodb://db:1/app", CLOCK)
    for _ in range(3):
        with pytest.raises(ConnectionError, match=r"/app: db:1: refused; is it running"):
            await store.open()
    assert asked == 1
    await asyncio.sleep(0.1)
    with pytest.raises(ConnectionError):
        await store.open()
    assert asked == 2
    await store.close()


async def test_what_is_closed_stays_closed(mongodb_database: str) -> None:
    store = mongodb_store(mongodb_database, CLOCK)
    await store.close()
    with pytest.raises(RuntimeError, match="is closed"):
        await store.records.find(["a"])


async def test_many_who_open_a_new_database_at_once_agree(mongodb_database: str) -> None:
    stores = [mongodb_store(mongodb_database, CLOCK) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores for _ in range(3)))
    assert await stores[0].ends.count() == (0, 0)
    for store in stores:
        await store.close()
