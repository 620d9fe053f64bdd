"""Work on SQLite grows with what is to be done, and not with what is stored.

Each test does the same at two sizes, a hundred times apart, and compares the steps of SQLite's
virtual machine: they may differ by a factor of two at most.
"""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import Lifecycle
from headway.clock import SystemChance, SystemClock
from headway.order import OnGap, SequenceSettings
from headway.testing.conformance.examples import MAILS, ORDERS, letters_for, publish
from headway.testing.conformance.stuck import scanned
from headway.testing.engines import (
    SqliteEngine,
    State,
    sqlite_engine,
    sqlite_sequences,
    sqlite_store,
    with_store,
)
from headway.testing.ports import Completion, Look, Offer, Parked, SweepRule, View, instant
from tests.engines.leases_in_doubt import LAPSED, RUNNING, leases_lapse, sweep_in_doubt
from tests.engines.observers.scraping import scraped
from tests.engines.pairs.harnesses import bus_parts
from tests.engines.sqlite.steps import Steps, fill

SMALL, LARGE = 100, 10_000
CLOCK = SystemClock()
DAY = timedelta(days=1)

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


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Callable[[int], SqliteEngine]]:
    engines: list[SqliteEngine] = []

    def opened(many: int) -> SqliteEngine:
        engine = sqlite_engine(tmp_path / f"{many}.db", CLOCK, SystemChance(), synchronous="off")
        engines.append(engine)
        return engine

    yield opened
    for engine in engines:
        await engine.bus.close()


def values(many: int) -> dict[str, object]:
    at = (CLOCK.now() - DAY).timestamp()
    return {"many": many, "queue": ORDERS.name, "failed": ORDERS.failed, "at": at}


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        pytest.param((DONE,), "", id="done"),
        pytest.param(
            (UNDECIDED, LETTERS), f'failed_letters{{queue="{ORDERS.failed}"}}', id="failed"
        ),
        pytest.param(
            (READY, COUNTED, ACCEPTED),
            f'queue_depth{{place="ready",queue="{ORDERS.name}"}}',
            id="ready",
        ),
        pytest.param((UNROUTED,), "headway_unrouted_events", id="unrouted"),
    ],
)
async def test_a_scrape_costs_the_same_whatever_is_stored(
    stored: tuple[str, ...],
    shown: str,
    steps: Steps,
    opened: Callable[[int], SqliteEngine],
    tmp_path: Path,
) -> None:
    costs = []
    for many in (SMALL, LARGE):
        engine = opened(many)
        await engine.bus.open([ORDERS, MAILS])
        fill(tmp_path / f"{many}.db", *stored, **values(many))
        cost, said = await steps.of(scraped(engine))
        assert not shown or f"{shown} {float(many)}" in said
        costs.append(cost)
    assert costs[1] <= 2 * costs[0]


async def test_events_removed_by_hand_are_in_no_queue(
    opened: Callable[[int], SqliteEngine], tmp_path: Path
) -> None:
    engine = opened(0)
    await engine.bus.open([ORDERS])
    await publish(engine, "a", "b", "c", "d")
    await engine.bus.take([ORDERS.name], 1)
    for where, left in (("token is null and operation = 'b'", 3), ("true", 0)):
        fill(tmp_path / "0.db", f"delete from headway_items where {where}")
        assert (await engine.places.depths()).waiting == left
    await publish(engine, "e")
    await engine.bus.open([ORDERS, MAILS])
    (_, orders) = (await engine.places.depths()).queues
    assert orders.ready >= 1, "the event that a worker had may be counted until the queue is empty"


async def test_a_scrape_does_not_ask_a_store_what_is_done(steps: Steps, tmp_path: Path) -> None:
    costs = []
    for many in (SMALL, LARGE):
        path = tmp_path / f"{many}.db"
        store = sqlite_store(path, CLOCK, synchronous="off")
        engine = with_store(bus_parts(State(), CLOCK), store)
        await engine.open([ORDERS, MAILS])
        fill(path, DONE, **values(many))
        cost, _ = await steps.of(scraped(engine))
        costs.append(cost)
        assert (await engine.places.balance()).done == many
        await engine.close()
    assert costs[1] <= 2 * max(costs[0], 1)


async def test_forgetting_old_records_skips_failures_that_wait_for_a_decision(
    steps: Steps, opened: Callable[[int], SqliteEngine], tmp_path: Path
) -> None:
    costs = []
    for many in (SMALL, LARGE):
        engine = opened(many)
        await engine.bus.open([ORDERS])
        fill(tmp_path / f"{many}.db", UNDECIDED, **values(many))
        fill(tmp_path / f"{many}.db", DONE, **values(5))
        cost, forgotten = await steps.of(engine.records.forget(CLOCK.now(), 1_000))
        assert forgotten == 5
        costs.append(cost)
    assert costs[1] <= 2 * costs[0]


async def test_resuming_a_queue_touches_what_is_parked_alone(
    steps: Steps, opened: Callable[[int], SqliteEngine], tmp_path: Path
) -> None:
    costs = []
    for many in (SMALL, LARGE):
        engine = opened(many)
        await engine.bus.open([ORDERS])
        await publish(engine, "a", "b", "c")
        taken = await engine.bus.take([ORDERS.name], 3)
        parked = [(each, Parked(CLOCK.now() + DAY, each.travel)) for each in taken]
        await engine.bus.settle(parked)
        fill(tmp_path / f"{many}.db", READY, COUNTED, **values(many))
        cost, resumed = await steps.of(engine.bus.resume(ORDERS.name))
        assert resumed == 3
        costs.append(cost)
    assert costs[1] <= 2 * costs[0]


def offer(position: int) -> Offer:
    return Offer("key", position, b"{}", f"offered {position}")


@pytest.mark.parametrize("behind", ["a flight", "a gap"])
async def test_a_result_costs_the_same_however_many_its_key_holds(
    behind: str, steps: Steps, tmp_path: Path
) -> None:
    """Hold results behind one that a worker is at, or that never came and was parked."""
    costs = []
    for many in (SMALL, LARGE):
        settings = SequenceSettings(on_gap=OnGap.PARK)
        path = tmp_path / f"{many}.db"
        sequences = sqlite_sequences(path, CLOCK, settings, synchronous="off")
        await sequences.offer([offer(0)])
        await sequences.complete([Completion("key", 0, "offered 0")])
        if behind == "a flight":
            await sequences.offer([offer(1)])
        await sequences.offer([offer(position) for position in range(2, many + 2)])
        before = steps.taken
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
        costs.append(steps.taken - before)
        await sequences.close()
    assert costs[1] <= 2 * costs[0]


MOVED = f"""
insert into headway_documents (collection, id, body)
{NUMBERS} select 'messages', 'moved ' || i, json_object(
    '_id', 'moved ' || i, 'status', 'pending', 'attemptCount', 1, 'lastAttemptTime', :now
) from n
"""


async def test_a_sweep_that_doubts_leases_reads_leased_documents_alone(
    steps: Steps, opened: Callable[[int], SqliteEngine], tmp_path: Path
) -> None:
    costs = []
    for many in (SMALL, LARGE):
        engine = opened(many)
        await engine.bus.open([MAILS])
        fill(tmp_path / f"{many}.db", MOVED, many=many, now=instant(CLOCK.now()))
        await leases_lapse(engine, CLOCK)
        await sweep_in_doubt(engine, CLOCK)  # makes the indexes
        cost, doubted = await steps.of(sweep_in_doubt(engine, CLOCK))
        assert (doubted.over, doubted.leased) == (LAPSED, RUNNING)
        costs.append(cost)
    assert costs[1] <= 2 * costs[0]


ELSEWHERE = f"""
insert into headway_documents (collection, id, body)
{NUMBERS} select 'messages', 'in hand ' || i, json_object(
    '_id', 'in hand ' || i, 'status', iif(i % 2, 'processed', 'pending'), 'embedded', json('false'),
    'lastAttemptTime', :now
) from n
"""
PLAIN = SweepRule(lifecycle=Lifecycle("messages"), version="2")
FLAGGED = SweepRule(lifecycle=Lifecycle("messages", flag="embedded"), version="2")


@pytest.mark.parametrize("rule", [PLAIN, FLAGGED], ids=["plain", "flagged"])
async def test_a_view_of_stuck_documents_costs_what_is_in_it(
    rule: SweepRule, steps: Steps, opened: Callable[[int], SqliteEngine], tmp_path: Path
) -> None:
    costs = []
    now = CLOCK.now()
    for many in (SMALL, LARGE):
        engine = opened(many)
        await engine.bus.open([MAILS])
        assert engine.sweeping is not None
        candidates = engine.sweeping.candidates
        await candidates.prepare([PLAIN, FLAGGED])
        fill(tmp_path / f"{many}.db", ELSEWHERE, many=many, now=instant(now))
        await leases_lapse(engine, CLOCK)
        before = steps.taken
        for view in View:
            for newest_first in (False, True):
                await scanned(candidates, view, now, rule, newest_first=newest_first, page=20)
        costs.append(steps.taken - before)
    assert costs[1] <= 2 * costs[0]


async def test_a_page_of_dead_letters_costs_the_same_in_a_long_queue(
    steps: Steps, opened: Callable[[int], SqliteEngine], tmp_path: Path
) -> None:
    costs = []
    for many in (SMALL, LARGE):
        engine = opened(many)
        await engine.bus.open([ORDERS])
        letters = letters_for([f"{n}" for n in range(20)], CLOCK.now())
        await engine.letters.write(ORDERS.failed, letters)
        fill(tmp_path / f"{many}.db", UNDECIDED, LETTERS, **values(many))
        cost, page = await steps.of(engine.letters.read(ORDERS.failed, 5, letters[9].letter_id))
        assert list(page) == letters[10:15]
        costs.append(cost)
    assert costs[1] <= 2 * costs[0]


NUMBERED = f"""
insert into headway_documents (collection, id, body)
{NUMBERS} select 'messages', i, json_object(
    '_id', i, 'number', i, 'third', json(iif(i % 3 = 0, 'true', 'false')), 'o.d', i
) from n
"""


@pytest.mark.parametrize(
    ("where", "matching"),
    [({"number": 7.0}, 1), ({"third": False, "number": 8}, 1), ({"o.d": 7}, 1), ({"_id": "7"}, 1)],
)
async def test_documents_are_filtered_by_sqlite(
    where: dict[str, Any],
    matching: int,
    steps: Steps,
    opened: Callable[[int], SqliteEngine],
    tmp_path: Path,
) -> None:
    """Every document of the collection is examined, and Python reads those that match."""
    engine = opened(SMALL)
    await engine.bus.open([])
    fill(tmp_path / f"{SMALL}.db", NUMBERED, many=SMALL)
    assert not await engine.documents.find("messages", {"number": -1}, 1_000)
    before = steps.rows
    assert len(await engine.documents.find("messages", where, 1_000)) == matching
    assert steps.rows - before < SMALL / 2
