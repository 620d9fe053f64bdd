"""What all done-records do: recognise a redelivery, hold what is unsent, and be forgotten."""

from datetime import datetime, timedelta

import msgspec

from headway.core.travel import Travel
from headway.ports.engine import Engine
from headway.ports.records import DoneRecord, Ended
from headway.testing.conformance.examples import (
    ORDERS,
    failing,
    key_of,
    letter_for,
    message,
    opened,
    publish,
    take_one,
    unit,
    well_travelled,
)
from headway.testing.conformance.harness import Capability, EngineHarness

HOUR = timedelta(hours=1)


def whole(instant: datetime) -> datetime:
    """Leave out what not every store can keep."""
    return instant.replace(microsecond=0)


def unsent(name: str, at: datetime, *, letter: bool = False) -> DoneRecord:
    """Make a record that still holds an event, or a letter."""
    return DoneRecord(
        key=f"shop/OrderPaid/0/{name}",
        operation=name,
        queue=ORDERS.name,
        ended=Ended.FAILED if letter else Ended.DONE,
        at=at,
        outgoing=() if letter else (message(f"out-{name}"),),
        letter=letter_for(Travel(operation=name), at) if letter else None,
        failed_queue=ORDERS.failed if letter else "",
    )


async def finished(harness: EngineHarness, engine: Engine, name: str, at: datetime) -> str:
    """Finish an operation at an instant, and give the key of its record."""
    await publish(engine, name)
    delivery = await take_one(harness, engine)
    await engine.finisher.finish([unit(delivery, at)])
    return key_of(delivery)


class RecordsConformance:
    """Records that finishers wrote, as anybody finds them."""

    async def test_records_are_found_by_their_keys(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        now = whole(harness.clock.now())
        names = ("a", "käse/ ✓'\"%", "c")
        keys = [await finished(harness, engine, name, now) for name in names]
        found = await (await opened(harness)).records.find([keys[1], "nobody's", keys[0]])
        assert set(found) == {keys[0], keys[1]}
        for name, key in zip(names[:2], keys[:2], strict=True):
            record = found[key]
            assert (record.key, record.operation) == (key, name)
            assert (record.queue, record.ended, record.at) == (ORDERS.name, Ended.DONE, now)
        assert not await engine.records.find([])

    async def test_every_end_is_kept_as_it_was(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        for ended in (Ended.DONE, Ended.DUPLICATE, Ended.SUPERSEDED):
            await publish(engine, ended.value)
            delivery = await take_one(harness, engine)
            await engine.finisher.finish([unit(delivery, harness.clock.now(), ended=ended)])
            found = await engine.records.find([key_of(delivery)])
            assert found[key_of(delivery)].ended is ended

    async def test_many_keys_can_be_asked_for_at_once(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        key = await finished(harness, engine, "a", harness.clock.now())
        many = [f"nobody's {number}" for number in range(2_000)]
        assert set(await engine.records.find([*many, key])) == {key}

    async def test_a_finished_unit_holds_nothing_that_is_unsent(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b")
        now = harness.clock.now()
        out = (message("out"),)
        for finish in (unit, failing):
            delivery = await take_one(harness, engine)
            await engine.finisher.finish([finish(delivery, now, outgoing=out)])
        assert list(await engine.records.undispatched(now + HOUR, 10)) == []

    async def test_what_a_record_holds_comes_out_as_it_went_in(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.UNSENT_RECORDS)
        engine = await opened(harness)
        now = whole(harness.clock.now())
        travel = well_travelled("ünïcødé", now)
        straight = message("x", body=b"\xff\x00", travel=travel, queue=ORDERS.name)
        record = msgspec.structs.replace(
            unsent("a", now, letter=True), outgoing=(straight, message("y"))
        )
        await harness.keep_record(record)
        assert await engine.records.find([record.key]) == {record.key: record}
        assert list(await engine.records.undispatched(now + HOUR, 10)) == [record]

    async def test_unsent_records_are_given_when_they_are_old_enough(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.UNSENT_RECORDS)
        engine = await opened(harness)
        now = whole(harness.clock.now())
        old = unsent("old", now - 3 * HOUR, letter=True)
        older = unsent("older", now - 4 * HOUR)
        for record in (old, unsent("young", now), older):
            await harness.keep_record(record)
        await finished(harness, engine, "sent", now - 5 * HOUR)
        records = await engine.records.undispatched(now - HOUR, 10)
        assert {record.key for record in records} == {old.key, older.key}
        assert len(await engine.records.undispatched(now - HOUR, 1)) == 1

    async def test_what_is_dispatched_is_not_held_any_more(self, harness: EngineHarness) -> None:
        harness.needs(Capability.UNSENT_RECORDS)
        engine = await opened(harness)
        now = whole(harness.clock.now())
        records = [unsent("a", now), unsent("b", now, letter=True), unsent("c", now)]
        for record in records:
            await harness.keep_record(record)
        sent = [records[0].key, records[1].key]
        await engine.records.dispatched([*sent, "nobody's"])
        await engine.records.dispatched(sent)
        await engine.records.dispatched([])
        assert list(await engine.records.undispatched(now + HOUR, 10)) == [records[2]]
        found = await engine.records.find(sent)
        assert [found[key].ended for key in sent] == [Ended.DONE, Ended.FAILED]
        assert [(found[key].outgoing, found[key].letter) for key in sent] == [((), None)] * 2

    async def test_old_records_of_finished_work_are_forgotten(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        now = harness.clock.now()
        old = [await finished(harness, engine, f"old-{n}", now - 3 * HOUR) for n in range(5)]
        young = await finished(harness, engine, "young", now)
        assert await engine.records.forget(now - 4 * HOUR, 10) == 0
        assert await engine.records.forget(now - HOUR, 2) == 2
        assert len(await engine.records.find(old)) == 3
        assert await engine.records.forget(now - HOUR, 10) == 3
        assert set(await engine.records.find([*old, young])) == {young}
        assert await engine.records.forget(now - HOUR, 10) == 0

    async def test_a_record_is_kept_while_its_letter_waits_for_a_decision(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        now = harness.clock.now()
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        failed = failing(delivery, now - 3 * HOUR)
        await engine.finisher.finish([failed])
        assert await engine.records.forget(now - HOUR, 10) == 0
        assert await engine.records.find([key_of(delivery)])
        assert failed.letter is not None
        await engine.letters.remove(ORDERS.failed, [failed.letter.letter_id])
        assert await engine.records.forget(now - HOUR, 10) == 1

    async def test_a_record_is_kept_while_it_holds_something_unsent(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.UNSENT_RECORDS)
        engine = await opened(harness)
        now = whole(harness.clock.now())
        record = unsent("a", now - 3 * HOUR)
        await harness.keep_record(record)
        assert await engine.records.forget(now - HOUR, 10) == 0
        await engine.records.dispatched([record.key])
        assert await engine.records.forget(now - HOUR, 10) == 1
