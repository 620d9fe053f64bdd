"""PostgreSQL behind PgBouncer: refused at start where it would fail later, else as without it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headway import ConfigurationError
from headway.errors import TransactionEndedError
from headway.testing.clock import VirtualClock
from headway.testing.conformance.commit import CommitConformance
from headway.testing.conformance.documents import DocumentsConformance
from headway.testing.conformance.leases import LeasesConformance
from headway.testing.conformance.records import RecordsConformance
from headway.testing.engines import postgres_store
from headway.testing.servers import PgBouncer, PostgreSQL
from tests.engines.pairs.postgres_harness import PostgresHarness, connected, emptied
from tests.engines.postgres.test_bodies import (
    OWN,
    UNDONE_AND_COMMITTED,
    Body,
    among_others,
    says,
)

pytestmark = [pytest.mark.server("postgresql"), pytest.mark.server("pgbouncer")]


async def opened(url: str) -> None:
    store = postgres_store(url, VirtualClock())
    try:
        await store.open()
        await asyncio.gather(*(store.sweeping.totals.add("a", {"b": 1}) for _ in range(20)))
    finally:
        await store.close()


async def test_sessions_that_change_are_refused_with_the_cure(
    pgbouncer_server: PgBouncer, postgres_database: str
) -> None:
    url = pgbouncer_server.through(postgres_database)
    for _ in range(3):
        with pytest.raises(ConfigurationError) as refused:
            await opened(url)
        assert "statement_cache_size=0" in str(refused.value)
    async with connected(postgres_database) as connection:
        assert await connection.fetchval("select to_regclass('headway_version')") is None
    await opened(f"{url}?statement_cache_size=0")
    async with connected(postgres_database) as connection:
        assert await connection.fetchval("select value from headway_totals") == 20


async def test_sessions_that_change_are_seen_under_load(
    pgbouncer_server: PgBouncer, postgres_database: str
) -> None:
    url = pgbouncer_server.through(postgres_database)
    store = postgres_store(f"{url}?statement_cache_size=0", VirtualClock())
    await store.open()
    ended = asyncio.Event()

    async def load() -> None:
        while not ended.is_set():
            await store.documents.find("docs", {}, 10)

    async with asyncio.TaskGroup() as others:
        for _ in range(4):
            others.create_task(load())
        try:
            for _ in range(3):
                with pytest.raises(ConfigurationError, match="statement_cache_size=0"):
                    await opened(url)
        finally:
            ended.set()
    await store.close()


@pytest.mark.parametrize("pool_size", [1, 20])
async def test_a_small_pool_is_refused_as_quickly(
    postgres_server: PostgreSQL, postgres_database: str, pool_size: int
) -> None:
    with PgBouncer(postgres_server, pool_size=pool_size) as pooler:
        async with asyncio.timeout(10):
            with pytest.raises(ConfigurationError, match="statement_cache_size=0"):
                await opened(pooler.through(postgres_database))


async def test_sessions_that_stay_are_used(
    postgres_server: PostgreSQL, postgres_database: str
) -> None:
    with PgBouncer(postgres_server, pool_mode="session") as pooler:
        await opened(pooler.through(postgres_database))
    with PgBouncer(postgres_server, pool_mode="session", pool_size=1) as pooler:
        store = postgres_store(pooler.through(postgres_database), VirtualClock())
        async with asyncio.timeout(10):
            await store.open()
        await store.close()


@pytest.fixture
async def harness(database: str, pgbouncer_server: PgBouncer) -> AsyncIterator[PostgresHarness]:
    await emptied(database)
    store_url = f"{pgbouncer_server.through(database)}?statement_cache_size=0"
    harness = PostgresHarness(database, store_url=store_url)
    yield harness
    await harness.close()


class TestThroughAPooler(
    CommitConformance, DocumentsConformance, LeasesConformance, RecordsConformance
):
    pass


@pytest.mark.parametrize(
    "body",
    [
        says("commit"),
        says("/* atomic */ commit; begin; savepoint headway_unit"),
        says("do $$ begin insert into own (text) values ('half'); commit; end $$"),
        says(*UNDONE_AND_COMMITTED),
    ],
    ids=lambda body: body.__name__,
)
async def test_a_callback_cannot_commit_through_a_pooler(
    harness: PostgresHarness, body: Body
) -> None:
    async with connected(harness.url) as connection:
        await connection.execute(OWN)
    finish = await among_others(harness, body)
    assert isinstance(finish.error, TransactionEndedError)
