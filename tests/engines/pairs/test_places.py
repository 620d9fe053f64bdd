"""What `verify` can know of a bus with a store beside it, and without one."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from headway.operations import verify
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
from headway.testing.conformance.harness import EngineHarness
from headway.testing.ports import Engine
from tests.engines.pairs.harnesses import BusHarness, StoreHarness

DAY = timedelta(days=1)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[StoreHarness]:
    harness = StoreHarness(tmp_path / "store.db")
    yield harness
    await harness.close()


async def worked(harness: EngineHarness) -> Engine:
    """Have one operation that is done and one that failed."""
    engine = await opened(harness)
    await publish(engine, "good", "bad")
    good, bad = await take(harness, engine, 2)
    now = harness.clock.now()
    await engine.finisher.finish([unit(good, now), failing(bad, now)])
    return engine


async def test_what_is_missing_is_known_by_a_list_once_nothing_waits(harness: StoreHarness) -> None:
    engine = await worked(harness)
    assert (await verify(engine.places)).verdict == "unknown"
    report = await verify(engine.places, against=["good", "bad"])
    assert (report.verdict, report.places["done"], report.places["failed"]) == ("ok", 1, 1)
    report = await verify(engine.places, against=["good", "bad", "gone"])
    assert (report.verdict, list(report.not_known)) == ("not ok", ["gone"])
    await publish(engine, "another")
    report = await verify(engine.places, against=["good", "bad", "gone"])
    assert (report.verdict, list(report.not_yet)) == ("unknown", ["gone"])


async def test_a_letter_removed_by_hand_is_missed_and_named(harness: StoreHarness) -> None:
    engine = await worked(harness)
    (letter,) = await engine.letters.read(ORDERS.failed, 10)
    del harness.state.letters[ORDERS.failed][letter.letter_id]
    number, (astray,) = await engine.places.astray(10)
    found = (number, astray.operation, astray.queue, astray.fault)
    assert found == (1, "bad", ORDERS.name, "missing")
    report = await verify(engine.places, against=["good", "bad"])
    assert (report.verdict, list(report.not_known)) == ("not ok", ["bad"])
    # While something waits in its queue, it may be that: an operator requeued it and died.
    await publish(engine, "another")
    assert await engine.places.astray(10) == (0, [])


async def test_a_letter_that_its_record_still_holds_is_no_loss(harness: StoreHarness) -> None:
    engine = await opened(harness)
    await publish(engine, "bad")
    delivery = await take_one(harness, engine)
    await harness.stores[0].commit([failing(delivery, harness.clock.now())])
    await harness.kill(engine)
    places = sorted((await engine.places.where(["bad"]))["bad"])
    assert places == [f"failed in {ORDERS.failed}", f"ready in {ORDERS.name}"]
    assert await engine.places.astray(10) == (0, [])


async def test_what_was_forgotten_is_still_counted_unless_it_waits_again(
    harness: StoreHarness,
) -> None:
    engine = await worked(harness)
    await publish(engine, "purged")
    await engine.finisher.finish([failing(await take_one(harness, engine), harness.clock.now())])
    requeued, purged = await engine.letters.read(ORDERS.failed, 10)
    await engine.letters.remove(ORDERS.failed, [purged.letter_id])
    await engine.letters.requeue(ORDERS.failed, requeued.letter_id, sent_again(requeued))
    forgotten = 0
    while number := await engine.records.forget(harness.clock.now() + DAY, 1):
        forgotten += number
        count = await engine.places.balance()
        assert (count.done, count.purged) == (2, 1)
    assert forgotten == 3
    again = await take_one(harness, engine)
    await engine.finisher.finish([unit(again, harness.clock.now())])
    assert (await engine.places.balance()).done == 3


async def test_without_a_store_what_was_done_is_unknown() -> None:
    engine = await worked(BusHarness())
    report = await verify(engine.places, against=["good", "bad"])
    assert (report.verdict, list(report.not_yet)) == ("unknown", ["good"])
    assert (report.count.remembers, report.count.done, report.places["failed"]) == (False, 0, 1)
    assert (await verify(engine.places)).verdict == "unknown"
