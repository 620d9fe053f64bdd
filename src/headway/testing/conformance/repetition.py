"""What every finisher makes of work that comes again: it takes effect once."""

import asyncio
from datetime import timedelta

import msgspec

from headway.core.errors import KeyTakenError
from headway.core.travel import Travel
from headway.core.writes import Add, Increment
from headway.ports.bus import Done, Later
from headway.ports.commit import Outcome, Unit
from headway.ports.records import Ended
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    PLACED,
    failing,
    key_of,
    kinds,
    message,
    nothing_due,
    opened,
    operations,
    publish,
    take,
    take_one,
    unit,
)
from headway.testing.conformance.harness import Capability, EngineHarness

COMMITTED, DUPLICATE = Outcome.COMMITTED, Outcome.DUPLICATE
LOST, REFUSED = Outcome.LOST, Outcome.REFUSED


class RepetitionConformance:
    """Units given again, deliveries lost, keys that are known, records that are there."""

    async def test_the_same_units_again_take_effect_once(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b")
        now = harness.clock.now()
        first, second = await take(harness, engine, 2)
        units = [
            unit(
                first,
                now,
                writes=(Increment("docs", "counter", "n"), Add("log", {"_id": "x"})),
                outgoing=(message("out", queue=MAILS.name),),
            ),
            failing(second, now, writes=(Increment("docs", "counter", "n"),)),
        ]
        assert kinds(await engine.finisher.finish(units)) == [COMMITTED, COMMITTED]
        again = set(kinds(await engine.finisher.finish(units)))
        # Where the store does not know who owns a delivery, the record tells.
        assert again == {DUPLICATE if Capability.ONE_COMMIT in harness.lacks else LOST}
        assert (await engine.documents.fetch("docs", ["counter"]))["counter"]["n"] == 2
        assert len(await engine.letters.read(ORDERS.failed, 10)) == 1
        assert operations(await take(harness, engine, 1, MAILS.name)) == ["out"]
        await nothing_due(harness, engine, ORDERS.name, MAILS.name)

    async def test_who_lost_a_delivery_can_not_finish_it(self, harness: EngineHarness) -> None:
        harness.needs(Capability.ONE_COMMIT)
        dead = await opened(harness)
        await publish(dead, "a", "b")
        lost = await take(harness, dead, 2)
        await harness.kill(dead)
        engine = await opened(harness)
        taken = await take(harness, engine, 2)
        now = harness.clock.now()
        late = [
            unit(
                lost[0],
                now,
                writes=(Increment("docs", "counter", "n"),),
                outgoing=(message("out", event_type=PLACED),),
            ),
            failing(lost[1], now),
        ]
        later = [Unit(delivery=each, then=Later(now, each.travel)) for each in lost]
        for units in (late, later):
            assert kinds(await dead.finisher.finish(units)) == [LOST, LOST]
        assert not await engine.documents.fetch("docs", ["counter"])
        assert not await engine.records.find([key_of(each) for each in lost])
        assert list(await engine.letters.read(ORDERS.failed, 10)) == []
        await nothing_due(harness, engine, ORDERS.name, MAILS.name)
        units = [unit(each, now, writes=(Increment("docs", "counter", "n"),)) for each in taken]
        assert kinds(await engine.finisher.finish(units)) == [COMMITTED, COMMITTED]
        assert (await engine.documents.fetch("docs", ["counter"]))["counter"]["n"] == 2

    async def test_of_two_operations_with_one_key_one_takes_effect(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b", "c")
        now = harness.clock.now()
        units = [
            unit(
                delivery,
                now,
                key="the same",
                writes=(Increment("docs", "counter", "n"),),
                outgoing=(message(f"out-{number}", queue=MAILS.name),),
            )
            for number, delivery in enumerate(await take(harness, engine, 3))
        ]
        # The second in the same group, the third in a later one.
        assert kinds(await engine.finisher.finish(units[:2])) == [COMMITTED, DUPLICATE]
        assert kinds(await engine.finisher.finish(units[2:])) == [DUPLICATE]
        assert (await engine.documents.fetch("docs", ["counter"]))["counter"]["n"] == 1
        (record,) = (await engine.records.find(["the same"])).values()
        assert (record.ended, record.operation) == (Ended.DONE, "a")
        assert operations(await take(harness, engine, 1, MAILS.name)) == ["out-0"]
        await nothing_due(harness, await opened(harness), ORDERS.name, MAILS.name)

    async def test_an_operation_that_comes_twice_takes_effect_once(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        travels = [Travel(operation="a"), Travel(operation="a", generation="again")]
        await engine.bus.publish([message("a", travel=travel) for travel in travels])
        units = [
            unit(
                delivery,
                harness.clock.now(),
                key="the same",
                writes=(Increment("docs", "counter", "n"),),
            )
            for delivery in await take(harness, engine, 2)
        ]
        assert kinds(await engine.finisher.finish(units)) == [COMMITTED, DUPLICATE]
        assert (await engine.documents.fetch("docs", ["counter"]))["counter"]["n"] == 1
        await nothing_due(harness, await opened(harness))
        assert (await engine.places.astray(10))[0] == 0

    async def test_several_workers_lose_nothing_of_each_other(self, harness: EngineHarness) -> None:
        engines = [await opened(harness) for _ in range(4)]
        await publish(engines[0], *(f"operation-{number}" for number in range(40)))
        groups = [
            [
                unit(delivery, harness.clock.now(), writes=(Increment("docs", "counter", "n"),))
                for delivery in await take(harness, engine, 10)
            ]
            for engine in engines
        ]
        finishes = await asyncio.gather(
            *(e.finisher.finish(group) for e, group in zip(engines, groups, strict=True))
        )
        assert [kinds(each) for each in finishes] == [[COMMITTED] * 10] * 4
        assert (await engines[0].documents.fetch("docs", ["counter"]))["counter"]["n"] == 40

    # What a record still holds

    async def test_a_delivery_whose_record_is_there_is_only_settled(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        again = Travel(operation="a", generation="again")
        await engine.bus.publish([message("a"), message("a", travel=again)])
        first, second = await take(harness, engine, 2)
        out = (message("out", queue=MAILS.name),)
        await engine.finisher.finish([unit(first, harness.clock.now(), outgoing=out)])
        record = (await engine.records.find([key_of(first)]))[key_of(first)]
        resumed = Unit(delivery=second, then=Done(), record=record, resumes=True)
        assert kinds(await engine.finisher.finish([resumed])) == [COMMITTED]
        assert await engine.records.find([key_of(first)]) == {key_of(first): record}
        assert operations(await take(harness, engine, 1, MAILS.name)) == ["out"]
        await nothing_due(harness, await opened(harness), ORDERS.name, MAILS.name)

    async def test_what_a_record_still_holds_is_sent_before_the_delivery_is_settled(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.UNSENT_RECORDS)
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        failed = failing(delivery, harness.clock.now() - timedelta(minutes=2))
        assert failed.record is not None
        out = (message("out", queue=MAILS.name),)
        held = msgspec.structs.replace(
            failed.record, outgoing=out, letter=failed.letter, failed_queue=ORDERS.failed
        )
        await harness.keep_record(held)
        found = (await engine.records.find([key_of(delivery)]))[key_of(delivery)]
        resumed = Unit(
            delivery=delivery,
            then=Done(),
            record=found,
            outgoing=found.outgoing,
            letter=found.letter,
            failed_queue=found.failed_queue,
            resumes=True,
        )
        assert kinds(await engine.finisher.finish([resumed])) == [COMMITTED]
        assert operations(await take(harness, engine, 1, MAILS.name)) == ["out"]
        assert list(await engine.letters.read(ORDERS.failed, 10)) == [failed.letter]
        (record,) = (await engine.records.find([key_of(delivery)])).values()
        assert (record.ended, record.outgoing, record.letter) == (Ended.FAILED, (), None)
        await nothing_due(harness, await opened(harness))

    async def test_the_key_of_work_that_failed_is_taken_but_makes_no_duplicate(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b")
        first, second = await take(harness, engine, 2)
        now = harness.clock.now()
        dead = failing(first, now)
        assert dead.record is not None
        assert kinds(await engine.finisher.finish([dead])) == [COMMITTED]
        corrected = unit(second, now, writes=(Increment("docs", "counter", "n"),))
        assert corrected.record is not None
        record = msgspec.structs.replace(corrected.record, key=dead.record.key)
        taken = msgspec.structs.replace(corrected, record=record)
        (finish,) = await engine.finisher.finish([taken])
        assert (finish.outcome, type(finish.error)) == (REFUSED, KeyTakenError)
        assert await engine.documents.fetch("docs", ["counter"]) == {}
        assert kinds(await engine.finisher.finish([corrected])) == [COMMITTED]
