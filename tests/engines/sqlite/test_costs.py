"""What SQLite does, counted in the steps of its virtual machine."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headway.clock import SystemChance, SystemClock
from headway.order import OnGap, SequenceSettings
from headway.testing.conformance.examples import MAILS, ORDERS, letters_for, publish
from headway.testing.engines import SqliteEngine, sqlite_engine, sqlite_sequences
from headway.testing.ports import Completion, Look, Offer, Parked, instant
from tests.engines.store_costs import LARGE, SMALL, Site, StoreCosts, T, scraped

CLOCK = SystemClock()
DAY = timedelta(days=1)
_EVERY = 10
"""Steps between two calls of the progress handler."""

NUMBERS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < :many)"
DONE = f"""
insert into headway_done (key, operation, queue, generation, ended, at, failed_queue)
{NUMBERS} select 'done ' || i, 'done ' || i, :queue, '0', 'done', :at, '' from n
"""
UNDECIDED = f"""
insert into headway_done (key, operation, queue, generation, ended, at, letter, failed_queue)
{NUMBERS} select 'failed ' || i, 'failed ' || i, :queue, '0', 'failed', :at, 'l' || i, 'f' from n
"""
LETTERS = f"""
insert into headway_letters (queue, letter_id, operation, generation, source_queue, written, body)
{NUMBERS} select :failed, 'l' || i, 'failed ' || i, '0', :queue, :at, '{{}}' from n
"""
READY = f"""
insert into headway_items (queue, due, operation, generation, failures, not_yet, parked_seconds,
                           requeues, body)
{NUMBERS} select :queue, :at, 'ready ' || i, '0', 0, 0, 0, 0, '{{}}' from n
"""
COUNTED = "update headway_queues set items = items + :many where name = :queue"
ACCEPTED = f"""
insert into headway_accepted {NUMBERS} select :queue, 'ready ' || i, :at from n
"""
UNROUTED = f"""
insert into headway_unrouted (event_type, operation, at, body)
{NUMBERS} select 'OrderShipped', 'unrouted ' || i, :at, '{{}}' from n
"""
MOVED = f"""
insert into headway_documents (collection, id, body)
{NUMBERS} select 'messages', 'moved ' || i, json_object(
    '_id', 'moved ' || i, 'number', i, 'attemptCount', 1, 'lastAttemptTime', :now,
    'status', iif(i % 2, 'pending', 'processed'), 'embedded', json(iif(i % 2, 'false', 'true'))
) from n
"""


class Steps(Site):
    """Counts steps and rows of all connections that are opened from now on."""

    clock = CLOCK

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = self.rows = 0
        self.engines: list[SqliteEngine] = []
        self._paths = (folder / f"{number}.db" for number in count())
        connect = sqlite3.connect

        def counting(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **options)
            connection.set_progress_handler(self._more, _EVERY)
            connection.row_factory = self._row
            return connection

        monkeypatch.setattr(sqlite3, "connect", counting)

    def _more(self) -> None:
        self.taken += _EVERY

    def _row(self, _cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        self.rows += 1
        return row

    async def opened(self) -> SqliteEngine:
        self.path = next(self._paths)
        engine = sqlite_engine(self.path, CLOCK, SystemChance(), synchronous="off")
        self.engines.append(engine)
        await engine.bus.open([ORDERS, MAILS])
        return engine

    def fill(self, many: int, *statements: str) -> None:
        at, now = (CLOCK.now() - DAY).timestamp(), instant(CLOCK.now())
        names = {"queue": ORDERS.name, "failed": ORDERS.failed}
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for statement in statements:
                connection.execute(statement, {"many": many, "at": at, "now": now, **names})

    async def fill_done(self, many: int) -> None:
        self.fill(many, DONE)

    async def fill_moved(self, many: int) -> None:
        self.fill(many, MOVED)

    async def examined(self, work: Awaitable[T]) -> tuple[int, int, T]:
        taken, rows = self.taken, self.rows
        answer = await work
        return self.taken - taken, self.rows - rows, answer

    async def compare(self, cost: Callable[[SqliteEngine, int], Awaitable[int]]) -> None:
        small, large = [await cost(await self.opened(), many) for many in (SMALL, LARGE)]
        assert large <= 2 * small


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Steps]:
    site = Steps(tmp_path, monkeypatch)
    yield site
    for engine in site.engines:
        await engine.bus.close()


class TestCosts(StoreCosts): ...


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ((UNDECIDED, LETTERS), f'failed_letters{{queue="{ORDERS.failed}"}}'),
        ((READY, COUNTED, ACCEPTED), f'queue_depth{{place="ready",queue="{ORDERS.name}"}}'),
        ((UNROUTED,), "headway_unrouted_events"),
    ],
    ids=["failed", "ready", "unrouted"],
)
async def test_a_scrape_costs_the_same_whatever_is_stored(
    site: Steps, stored: Sequence[str], shown: str
) -> None:
    async def scrape(engine: SqliteEngine, many: int) -> int:
        site.fill(many, *stored)
        cost, _, page = await site.examined(scraped(engine))
        assert f"{shown} {float(many)}" in page
        return cost

    await site.compare(scrape)


async def test_forgetting_old_records_skips_failures_that_wait_for_a_decision(
    site: Steps,
) -> None:
    async def forget(engine: SqliteEngine, many: int) -> int:
        site.fill(many, UNDECIDED)
        site.fill(5, DONE)
        cost, _, forgotten = await site.examined(engine.records.forget(CLOCK.now(), 1_000))
        assert forgotten == 5
        return cost

    await site.compare(forget)


async def test_resuming_a_queue_touches_what_is_parked_alone(site: Steps) -> None:
    async def resume(engine: SqliteEngine, many: int) -> int:
        await publish(engine, "a", "b", "c")
        taken = await engine.bus.take([ORDERS.name], 3)
        parked = [(each, Parked(CLOCK.now() + DAY, each.travel)) for each in taken]
        await engine.bus.settle(parked)
        site.fill(many, READY, COUNTED)
        cost, _, resumed = await site.examined(engine.bus.resume(ORDERS.name))
        assert resumed == 3
        return cost

    await site.compare(resume)


async def test_a_page_of_dead_letters_costs_the_same_in_a_long_queue(site: Steps) -> None:
    async def read(engine: SqliteEngine, many: int) -> int:
        letters = letters_for([f"{n}" for n in range(20)], CLOCK.now())
        await engine.letters.write(ORDERS.failed, letters)
        site.fill(many, UNDECIDED, LETTERS)
        page = engine.letters.read(ORDERS.failed, 5, letters[9].letter_id)
        cost, _, found = await site.examined(page)
        assert list(found) == letters[10:15]
        return cost

    await site.compare(read)


def offer(position: int) -> Offer:
    return Offer("key", position, b"{}", f"offered {position}")


@pytest.mark.parametrize("behind", ["a flight", "a gap"])
async def test_a_result_costs_the_same_however_many_its_key_holds(
    behind: str, site: Steps, tmp_path: Path
) -> None:
    """Hold results behind one that a worker is at, or that never came and was parked."""
    costs = []
    for many in (SMALL, LARGE):
        settings = SequenceSettings(on_gap=OnGap.PARK)
        path = tmp_path / f"results {many}.db"
        sequences = sqlite_sequences(path, CLOCK, settings, synchronous="off")
        await sequences.offer([offer(0)])
        await sequences.complete([Completion("key", 0, "offered 0")])
        if behind == "a flight":
            await sequences.offer([offer(1)])
        await sequences.offer([offer(position) for position in range(2, many + 2)])
        before = site.taken
        held, again = [(await sequences.offer([offer(many + 2)]))[0] for _ in range(2)]
        assert (held.outcome, again.outcome, again.again) == ("held", "held", True)
        (looked,) = await sequences.look([Look("key", "looks")])
        assert (looked.work, looked.held, held.held) == (None, many + 1, many + 1)
        if behind == "a gap":
            (came,) = await sequences.offer([offer(1)])
            assert came.outcome == "process"
        for position in range(1, 6):
            (turn,) = await sequences.complete([Completion("key", position, "offered 1")])
            assert turn.work is not None
            assert (turn.work.position, turn.held) == (position + 1, many + 2 - position)
        costs.append(site.taken - before)
        await sequences.close()
    assert costs[1] <= 2 * costs[0]
