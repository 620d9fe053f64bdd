"""What every finisher does with units: each as one, or not at all."""

from headway.core.travel import Travel
from headway.core.writes import Add, Increment, InsertNew, Update
from headway.ports.bus import Done, HandedBack, Later, Parked, Then
from headway.ports.commit import Outcome, Unit
from headway.ports.records import Ended
from headway.testing.conformance.examples import (
    MAILS,
    NOBODYS,
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
    well_travelled,
    wrote,
)
from headway.testing.conformance.harness import Capability, EngineHarness

COMMITTED, DUPLICATE = Outcome.COMMITTED, Outcome.DUPLICATE
LOST, REFUSED = Outcome.LOST, Outcome.REFUSED


class UnitsConformance:
    """Units as a whole."""

    async def test_finishing_nothing_is_nothing(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        assert list(await engine.finisher.finish([])) == []

    async def test_a_unit_takes_effect_as_one(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        now = harness.clock.now().replace(microsecond=0)
        out = message("out", event_type=PLACED, body=b"\xff", travel=Travel(operation="out"))
        finished = unit(
            delivery, now, writes=(InsertNew("docs", {"_id": "1", "n": 1}),), outgoing=(out,)
        )
        (finish,) = await engine.finisher.finish([finished])
        assert (finish.outcome, finish.skipped, finish.error) == (COMMITTED, 0, None)
        assert await engine.documents.fetch("docs", ["1"]) == {"1": {"_id": "1", "n": 1}}
        (record,) = (await engine.records.find([key_of(delivery)])).values()
        assert (record.key, record.operation) == (key_of(delivery), "a")
        assert (record.queue, record.ended, record.at) == (ORDERS.name, Ended.DONE, now)
        assert (record.outgoing, record.letter) == ((), None)
        assert list(await engine.bus.settle([(delivery, Done())])) == [False]
        await engine.bus.close()  # it may have been given what was sent, and have it in hand
        other = await opened(harness)
        for queue in (ORDERS.name, MAILS.name):
            sent = await take_one(harness, other, queue)
            assert (sent.travel.operation, sent.body) == ("out", b"\xff")
            await nothing_due(harness, other, queue)

    async def test_an_outgoing_event_that_nobody_takes_stops_nothing(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        out = (message("out", event_type=NOBODYS),)
        finishes = await engine.finisher.finish([unit(delivery, harness.clock.now(), outgoing=out)])
        assert kinds(finishes) == [COMMITTED]

    async def test_what_is_not_finished_is_settled_without_a_record(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "later", "parked", "back")
        taken = await take(harness, engine, 3)
        due = harness.clock.now() + 3 * harness.moment
        travels = {
            name: well_travelled(name, harness.clock.now()) for name in ("later", "parked", "back")
        }
        thens: dict[str, Then] = {
            "later": Later(due, travels["later"]),
            "parked": Parked(due, travels["parked"]),
            "back": HandedBack(),
        }
        units = [Unit(delivery=d, then=thens[d.travel.operation]) for d in taken]
        assert kinds(await engine.finisher.finish(units)) == [COMMITTED] * 3
        assert not await engine.records.find([key_of(delivery) for delivery in taken])
        back = await take_one(harness, engine)
        assert (back.travel.operation, back.returns, back.travel.failures) == ("back", 0, 0)
        waited = {d.travel.operation: d.travel for d in await take(harness, engine, 2)}
        assert waited == {name: travels[name] for name in ("later", "parked")}
        assert harness.clock.now() >= due

    async def test_a_refused_unit_leaves_no_trace_and_stays_with_its_taker(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        await wrote(harness, engine, InsertNew("docs", {"_id": "1", "status": "taken"}))
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        refused = unit(
            delivery,
            harness.clock.now(),
            writes=(
                InsertNew("docs", {"_id": "2"}),
                Increment("docs", "1", "n"),
                Add("log", {"_id": "x"}),
                Update("docs", "1", {"status": "mine"}, {"status": "free"}),
            ),
            outgoing=(message("out", event_type=PLACED),),
        )
        for _ in range(2):
            (finish,) = await engine.finisher.finish([refused])
            assert finish.outcome is REFUSED
            assert isinstance(finish.error, Exception)
        docs = await engine.documents.find("docs", {}, 10)
        assert list(docs) == [{"_id": "1", "status": "taken"}]
        assert list(await engine.documents.find("log", {}, 10)) == []
        assert not await engine.records.find([key_of(delivery)])
        await nothing_due(harness, await opened(harness), ORDERS.name, MAILS.name)
        assert kinds(await engine.finisher.finish([unit(delivery, harness.clock.now())])) == [
            COMMITTED
        ]

    async def test_one_refused_unit_takes_no_other_along(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        names = [f"operation-{number}" for number in range(5)]
        await publish(engine, *names)
        taken = await take(harness, engine, 5)
        units = [
            unit(
                delivery,
                harness.clock.now(),
                writes=(
                    Increment("docs", "counter", "n"),
                    *([Update("docs", "nobody", {"a": 1})] if number in {0, 2} else []),
                ),
                outgoing=(message(f"out-{number}", queue=MAILS.name),),
            )
            for number, delivery in enumerate(taken)
        ]
        outcomes = kinds(await engine.finisher.finish(units))
        assert outcomes == [REFUSED, COMMITTED, REFUSED, COMMITTED, COMMITTED]
        assert (await engine.documents.fetch("docs", ["counter"]))["counter"]["n"] == 3
        sent = await take(harness, engine, 3, MAILS.name)
        assert sorted(operations(sent)) == ["out-1", "out-3", "out-4"]
        recorded = await engine.records.find([key_of(delivery) for delivery in taken])
        assert set(recorded) == {key_of(taken[number]) for number in (1, 3, 4)}
        refused = [(taken[0], Done()), (taken[2], Done())]
        assert list(await engine.bus.settle(refused)) == [True, True]

    async def test_of_two_units_that_expect_the_same_one_wins(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        await wrote(harness, engine, InsertNew("docs", {"_id": "1", "status": "free"}))
        await publish(engine, "a", "b")
        units = [
            unit(
                delivery,
                harness.clock.now(),
                writes=(Update("docs", "1", {"status": number}, {"status": "free"}),),
            )
            for number, delivery in enumerate(await take(harness, engine, 2))
        ]
        assert kinds(await engine.finisher.finish(units)) == [COMMITTED, REFUSED]
        assert (await engine.documents.fetch("docs", ["1"]))["1"]["status"] == 0

    async def test_a_failed_unit_leaves_a_letter_and_a_record(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        await engine.bus.publish([message("a", body=b"\xff no JSON")])
        delivery = await take_one(harness, engine)
        failed = failing(
            delivery,
            harness.clock.now(),
            outgoing=(message("OrderFailed-1", queue=MAILS.name),),
            writes=(Add("log", {"_id": "x"}),),
        )
        assert kinds(await engine.finisher.finish([failed])) == [COMMITTED]
        (letter,) = await engine.letters.read(ORDERS.failed, 10)
        assert letter == failed.letter
        assert letter.body == b"\xff no JSON"
        (record,) = (await engine.records.find([key_of(delivery)])).values()
        assert (record.ended, record.letter, record.outgoing) == (Ended.FAILED, None, ())
        assert operations(await take(harness, engine, 1, MAILS.name)) == ["OrderFailed-1"]
        assert len(await engine.documents.find("log", {}, 10)) == 1
        await nothing_due(harness, await opened(harness))
