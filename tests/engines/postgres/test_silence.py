"""A server of PostgreSQL that does not answer, or is not there."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from headway.adapters.postgres import link, silence
from headway.adapters.postgres.link import Link

asked: list[int] = []


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """Somebody who listens and says nothing."""
    asked.clear()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(1)
        try:
            while await reader.read(1_000):
                pass
        finally:
            writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield f"postgresql://me:s3cret@127.0.0.1:{port}/db?sslmode=disable"
    server.close()


async def test_who_does_not_answer_is_asked_once_in_a_while(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_CONNECT_SECONDS", 0.3)
    monkeypatch.setattr(silence, "_ASKED_ONCE", 0.2)
    there = Link(silent, prepare=_ask)
    said = (
        r"me:\*\*\*@.* did not answer within 0\.3 s; is it running, and is HEADWAY_STORE right\?$"
    )
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(ConnectionError, match=said):
            await there.open()
    assert 0.25 < time.monotonic() - began < 0.8
    before = len(asked)
    await asyncio.sleep(0.3)
    with pytest.raises(ConnectionError, match=said):
        await there.open()
    assert len(asked) > before


async def test_where_nobody_listens_the_cure_is_said_and_it_is_asked_each_time() -> None:
    there = Link("postgresql://me:s3cret@127.0.0.1:1/db", prepare=_ask)
    for _ in range(2):
        with pytest.raises(ConnectionError) as error:
            await there.open()
        assert str(error.value).startswith("no connection to postgresql://me:***@127.0.0.1:1/db: ")
        assert str(error.value).endswith("; is it running, and is HEADWAY_STORE right?")
        assert error.value.__cause__ is not None


async def _ask(_connection: object, _place: object) -> None:
    """Only connecting matters here."""
