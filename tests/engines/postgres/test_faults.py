"""PostgreSQL as a store when connections and servers die: nothing is lost, nothing is twice."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from headway import Lifecycle
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.clock import VirtualClock
from headway.testing.conformance.examples import ORDERS, unit
from headway.testing.engines import PostgresStore, postgres_store
from headway.testing.ports import (
    Add,
    Beginning,
    Claim,
    Delivery,
    Finish,
    Increment,
    InsertNew,
    Outcome,
    Requeue,
    SweepRule,
    Travel,
    Unit,
    Update,
    Write,
)
from headway.testing.proxy import Fault, Proxy, Rule
from headway.testing.servers import PostgreSQL
from tests.engines.pairs.postgres_harness import connected
from tests.engines.waiting import until

pytestmark = pytest.mark.server("postgresql")
NOW = datetime(2026, 1, 17, tzinfo=UTC)
NUMBERS = itertools.count()


def made(operation: str, *writes: Write, generation: str = "0", **fields: Any) -> Unit:
    travel = Travel(operation=operation, generation=generation)
    delivery = Delivery(queue=ORDERS.name, body=b"{}", travel=travel, receipt=None)
    return unit(delivery, NOW, writes=writes, **fields)


def run_of(operation: str) -> Unit:
    """Make the unit of one run of a handler: what it appends is something new in each run."""
    return made(
        operation,
        Add("log", {"_id": f"{next(NUMBERS)}", "operation": operation}),
        Increment("counters", "all", "n"),
    )


class Workers:
    """Tasks on two stores that go on until all is committed, whatever happens."""

    def __init__(self, url: str, operations: int) -> None:
        self.stores = [postgres_store(url, VirtualClock()) for _ in range(2)]
        self.names = [f"operation-{n}" for n in range(operations)]
        self.finished = 0
        self.progress = asyncio.Event()
        self.failures: list[Exception] = []

    async def work(self) -> None:
        """Work, and see that every operation took effect once."""
        groups = [self.names[start : start + 5] for start in range(0, len(self.names), 5)]
        await asyncio.gather(*(self._worker(groups[n::4], self.stores[n % 2]) for n in range(4)))
        documents = self.stores[0].documents
        log = await documents.find("log", {}, 10 * len(self.names))
        assert sorted(each["operation"] for each in log) == sorted(self.names)
        found = await documents.fetch("counters", ["all"])
        assert found["all"]["n"] == len(self.names)
        assert await self.stores[1].ends.count() == (len(self.names), 0)
        for store in self.stores:
            await store.close()

    async def _worker(self, groups: Sequence[Sequence[str]], store: PostgresStore) -> None:
        for group in groups:
            finishes: Sequence[Finish] = ()
            while not finishes:
                try:
                    finishes = await store.commit([run_of(name) for name in group])
                except Exception as error:
                    if DEFAULT_CLASSIFIER.classify(error).verdict is Verdict.PERMANENT:
                        raise
                    self.failures.append(error)
                    await asyncio.sleep(0.02)
            assert {each.outcome for each in finishes} <= {Outcome.COMMITTED, Outcome.DUPLICATE}
            self.finished += len(group)
            self.progress.set()

    async def reach(self, operations: int) -> None:
        async with asyncio.timeout(60):
            while self.finished < operations:
                self.progress.clear()
                await self.progress.wait()


def test_a_server_that_is_killed_loses_nothing_and_doubles_nothing() -> None:
    async def run(server: PostgreSQL) -> None:
        workers = Workers(server.create_database(), 200)
        task = asyncio.create_task(workers.work())
        for part in (1, 2):
            await workers.reach(part * 60)
            server.kill()
            await asyncio.sleep(0.1)
            server.start()
        await task
        assert len(workers.failures) >= 2

    with PostgreSQL() as server:
        asyncio.run(run(server))


async def test_connections_that_are_ended_by_others_are_replaced(postgres_database: str) -> None:
    workers = Workers(postgres_database, 300)
    draw = random.Random(3)
    task = asyncio.create_task(workers.work())
    ended = 0
    async with connected(postgres_database) as connection:
        for part in range(15):
            await workers.reach(part * 15)  # it has to get on in between
            await asyncio.sleep(draw.uniform(0, 0.01))
            ended += await connection.fetchval(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity "
                "where datname = current_database() and application_name = 'headway'"
            )
    await task
    assert ended > 25
    assert len(workers.failures) > 5
    assert all(isinstance(each, ConnectionError) for each in workers.failures)


async def test_a_connection_that_was_lost_while_idle_is_not_noticed(postgres_database: str) -> None:
    store = postgres_store(postgres_database, VirtualClock())
    await asyncio.gather(*(store.commit([run_of(f"{n}")]) for n in range(10)))
    async with connected(postgres_database) as connection:
        for n in range(3):
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and application_name = 'headway'"
            )
            (finish,) = await store.commit([run_of(f"next {n}")])
            assert finish.outcome is Outcome.COMMITTED
            assert len(await store.documents.find("log", {}, 100)) == 11 + n
    await store.close()


async def deadlocks(url: str) -> int:
    """Count them; the sessions that had them have to be closed by now."""
    async with connected(url) as connection:
        count: int = await connection.fetchval(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
    return count


async def test_all_who_change_the_same_documents_never_deadlock_and_lose_nothing(
    postgres_database: str,
) -> None:
    stores = [postgres_store(postgres_database, VirtualClock()) for _ in range(2)]
    draw = random.Random(11)
    lifecycle = Lifecycle("docs", lease=timedelta(minutes=1))
    rule = SweepRule(lifecycle=lifecycle)
    ids = [f"{n}" for n in range(40)]
    await stores[0].commit([made("first", *(InsertNew("docs", {"_id": one}) for one in ids))])

    async def some(store: PostgresStore, name: str) -> None:
        documents, sweeping = store.documents, store.sweeping
        for n in range(8):
            chosen = draw.sample(ids, 20)
            found = list((await documents.fetch("docs", chosen)).values())
            changes: list[Write] = [Update("docs", one, {"x": n}) for one in draw.sample(ids, 20)]
            new = draw.sample(ids, 12)
            changes += [InsertNew("new", {"_id": f"{n} {one}", "n": 0}) for one in new]
            changes += [Increment("new", f"{n} {one}", "n") for one in reversed(new)]
            finishes = await store.commit([made(f"{name}-{n}", *changes)])
            assert [each.outcome for each in finishes] == [Outcome.COMMITTED]
            await documents.begin(
                [
                    Beginning(
                        lifecycle=lifecycle,
                        ids=tuple(draw.sample(ids, 5)),
                        operation=f"{name}-{n}-{m}",
                        token=name,
                        now=NOW + timedelta(hours=n),
                    )
                    for m in range(4)
                ]
            )
            await documents.renew("docs", dict.fromkeys(draw.sample(ids, 20), name), NOW)
            claims = [Claim(each, Requeue("o", 1, 1)) for each in found]
            won = await sweeping.candidates.claim(rule, claims, name, NOW, timedelta(minutes=1))
            await sweeping.candidates.give_back(rule, draw.sample(sorted(won), len(won)), name)
            await sweeping.desk.change("docs", found, {"y": n})

    await asyncio.gather(*(some(stores[n % 2], f"w{n}") for n in range(6)))
    counted = await stores[0].documents.find("new", {}, 1_000)
    assert sum(each["n"] for each in counted) == 6 * 8 * 12
    for store in stores:
        await store.close()
    assert await deadlocks(postgres_database) == 0


async def test_what_many_forget_at_once_is_counted_once(postgres_database: str) -> None:
    stores = [postgres_store(postgres_database, VirtualClock()) for _ in range(3)]
    names = [f"{n}" for n in range(30)]
    for generation in ("0", "first", "second", "third"):
        units = [made(name, generation=generation, key=f"{name} {generation}") for name in names]
        await stores[0].commit(units)
    assert await stores[0].ends.count() == (30, 0)
    later = NOW + timedelta(hours=1)
    while any(await asyncio.gather(*(each.records.forget(later, 7) for each in stores * 2))):
        assert await stores[0].ends.count() == (30, 0)
    assert await stores[0].ends.count() == (30, 0)
    assert not await stores[0].ends.where(names)
    for store in stores:
        await store.close()


# On the way


def _has_fired(rule: Rule) -> bool:
    return rule.fired > 0


@pytest.fixture
def proxy(postgres_server: PostgreSQL) -> Iterator[Proxy]:
    with Proxy(*postgres_server.address) as proxy:
        yield proxy


@pytest.fixture
async def far(proxy: Proxy, postgres_database: str) -> AsyncIterator[PostgresStore]:
    """A store behind the proxy."""
    store = postgres_store(proxy.through(postgres_database), VirtualClock())
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize(
    ("fault", "again"),
    [(Fault.CUT_BEFORE, Outcome.COMMITTED), (Fault.CUT_AFTER, Outcome.DUPLICATE)],
)
@pytest.mark.parametrize("size", [1, 3])
async def test_a_commit_whose_answer_is_lost_takes_effect_once(
    proxy: Proxy, far: PostgresStore, fault: Fault, again: Outcome, size: int
) -> None:
    rule = proxy.when(b"commit\0", fault)
    units = [run_of(f"{n}") for n in range(size)]
    with pytest.raises(ConnectionError, match="no connection to postgresql://"):
        await far.commit(units)
    assert rule.fired == 1
    assert [each.outcome for each in await far.commit(units)] == [again] * size
    assert (await far.documents.fetch("counters", ["all"]))["all"]["n"] == size


async def test_a_server_that_says_nothing_any_more_is_noticed(
    proxy: Proxy, far: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.adapters.postgres.link._ANSWER_SECONDS", 0.3)
    store = postgres_store(far._url, VirtualClock())
    await store.open()
    for marker, call in (
        (b"insert into headway_done", lambda: store.commit([run_of("a")])),
        (b"select id, body", lambda: store.documents.fetch("log", ["1"])),
    ):
        proxy.when(marker, Fault.HANG_BEFORE)
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionError, match=r"0\.3 s"):
                await call()
    proxy.cut()
    assert [each.outcome for each in await store.commit([run_of("a")])] == [Outcome.COMMITTED]
    await store.close()


async def test_who_is_cancelled_leaves_nothing_behind(
    proxy: Proxy, far: PostgresStore, postgres_database: str
) -> None:
    for n, marker in enumerate((b"insert into headway_done", b"commit\0")):
        rule = proxy.when(marker, Fault.HANG_BEFORE)
        task = asyncio.create_task(far.commit([run_of(f"{n}")]))
        await until(partial(_has_fired, rule))
        task.cancel()
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await task
        proxy.cut()
        (finish,) = await far.commit([run_of(f"{n}")])
        assert finish.outcome is Outcome.COMMITTED
    async with connected(postgres_database) as connection:
        log = await connection.fetchval(
            "select count(*) from headway_documents where collection = 'log'"
        )
    assert log == 2
