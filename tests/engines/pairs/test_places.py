"""What `verify` can know of a bus with a store beside it, and without one."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from headway.operations import verify
from headway.runtime.overview import Verdict
from headway.testing.conformance.examples import (
    ORDERS,
    failing,
    opened,
    publish,
    sent_again,
    take,
    take_one,
    unit,
)
from headway.testing.ports import Engine
from tests.engines.pairs.harnesses import BusHarness, StoreHarness

DAY = timedelta(days=1)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[StoreHarness]:
    harness = StoreHarness(tmp_path / "store.db")
    yield harness
    await harness.close()


async def worked(harness: StoreHarness) -> Engine:
    """Have one operation that is done and one that failed."""
    engine = await opened(harness)
    await publish(engine, "good", "bad")
    good, bad = await take(harness, engine, 2)
    now = harness.clock.now()
    await engine.finisher.finish([unit(good, now), failing(bad, now)])
    return engine


async def test_nobody_counted_so_it_is_unknown_unless_a_list_is_given(
    harness: StoreHarness,
) -> None:
    engine = await worked(harness)
    assert (await verify(engine.places)).verdict is Verdict.UNKNOWN
    report = await verify(engine.places, against=["good", "bad"])
    assert (report.verdict, report.places["done"], report.places["failed"]) == (Verdict.OK, 1, 1)


async def test_what_is_in_no_known_place_is_named_once_nothing_waits(
    harness: StoreHarness,
) -> None:
    engine = await worked(harness)
    report = await verify(engine.places, against=["good", "bad", "gone"])
    assert (report.verdict, list(report.not_known)) == (Verdict.NOT_OK, ["gone"])
    await publish(engine, "another")
    report = await verify(engine.places, against=["good", "bad", "gone"])
    assert (report.verdict, list(report.not_yet)) == (Verdict.UNKNOWN, ["gone"])


async def test_a_letter_removed_by_hand_is_missed_and_named(harness: StoreHarness) -> None:
    engine = await worked(harness)
    (letter,) = await engine.letters.read(ORDERS.failed, 10)
    del harness.state.letters[ORDERS.failed][letter.letter_id]
    number, (astray,) = await engine.places.astray(10)
    assert (number, astray.operation, astray.queue, astray.fault) == (
        1,
        "bad",
        ORDERS.name,
        "missing",
    )
    report = await verify(engine.places, against=["good", "bad"])
    assert (report.verdict, list(report.not_known)) == (Verdict.NOT_OK, ["bad"])
    # While something waits in its queue, it may be that: somebody requeued it and died.
    await publish(engine, "another")
    assert await engine.places.astray(10) == (0, [])


async def test_a_letter_that_its_record_still_holds_is_no_loss(harness: StoreHarness) -> None:
    engine = await opened(harness)
    await publish(engine, "bad")
    delivery = await take_one(harness, engine)
    await harness.stores[0].commit([failing(delivery, harness.clock.now())])
    await harness.kill(engine)
    assert sorted((await engine.places.where(["bad"]))["bad"]) == [
        f"failed in {ORDERS.failed}",
        f"ready in {ORDERS.name}",
    ]
    assert await engine.places.astray(10) == (0, [])


async def test_what_was_forgotten_is_still_counted(harness: StoreHarness) -> None:
    engine = await worked(harness)
    (letter,) = await engine.letters.read(ORDERS.failed, 10)
    await engine.letters.requeue(ORDERS.failed, letter.letter_id, sent_again(letter))
    again = await take_one(harness, engine)
    await engine.finisher.finish([unit(again, harness.clock.now())])
    assert (await engine.places.balance()).done == 2
    await publish(engine, "purged")
    await engine.finisher.finish([failing(await take_one(harness, engine), harness.clock.now())])
    (letter,) = await engine.letters.read(ORDERS.failed, 10)
    await engine.letters.remove(ORDERS.failed, [letter.letter_id])
    while await engine.records.forget(harness.clock.now() + DAY, 1):
        count = await engine.places.balance()
        assert (count.done, count.purged) == (3, 1)
    with closing(sqlite3.connect(harness.path)) as connection:
        assert connection.execute("select count(*) from headway_done").fetchone() == (0,)


async def test_what_was_requeued_and_waits_is_not_counted_when_it_is_forgotten(
    harness: StoreHarness,
) -> None:
    engine = await worked(harness)
    (letter,) = await engine.letters.read(ORDERS.failed, 10)
    await engine.letters.requeue(ORDERS.failed, letter.letter_id, sent_again(letter))
    while await engine.records.forget(harness.clock.now() + DAY, 10):
        pass
    assert (await engine.places.balance()).done == 1


async def test_without_a_store_nobody_knows_what_was_done() -> None:
    harness = BusHarness()
    engine = await opened(harness)
    await publish(engine, "good", "bad")
    good, bad = await take(harness, engine, 2)
    now = harness.clock.now()
    await engine.finisher.finish([unit(good, now), failing(bad, now)])
    report = await verify(engine.places, against=["good", "bad"])
    assert (report.verdict, list(report.not_yet)) == (Verdict.UNKNOWN, ["good"])
    assert (report.count.remembers, report.count.done, report.places["failed"]) == (False, 0, 1)
    assert (await verify(engine.places)).verdict is Verdict.UNKNOWN
