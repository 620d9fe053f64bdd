"""What every bus does with a delivery that is settled: nothing early, nothing held up."""

from datetime import timedelta

from headway.ports.bus import Done, HandedBack, Later, Parked
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    message,
    nothing_due,
    opened,
    operations,
    publish,
    take,
    take_one,
    well_travelled,
)
from headway.testing.conformance.harness import Capability, EngineHarness

STEPS = (timedelta(hours=1), timedelta(hours=-1), timedelta(days=365), timedelta(days=-365))
"""By how much a wall clock may be set."""


class SettlingConformance:
    """Done, later, parked; for the fourth, handed back, see TakingsConformance."""

    async def test_what_is_done_is_gone(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b")
        taken = await take(harness, engine, 2)
        assert list(await engine.bus.settle([(d, Done()) for d in taken])) == [True, True]
        await engine.bus.close()
        await nothing_due(harness, await opened(harness))

    async def test_a_delivery_is_settled_once(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        assert list(await engine.bus.settle([(delivery, Done())])) == [True]
        for then in (Done(), HandedBack(), Later(harness.clock.now(), delivery.travel)):
            assert list(await engine.bus.settle([(delivery, then)])) == [False]
        assert await engine.bus.begin(delivery) is False
        await nothing_due(harness, engine)

    async def test_what_is_due_later_is_not_given_earlier(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        travel = well_travelled("a", harness.clock.now())
        due = harness.clock.now() + 8 * harness.moment
        assert list(await engine.bus.settle([(delivery, Later(due, travel))])) == [True]
        for _ in range(3):
            await nothing_due(harness, engine)
        again = await take_one(harness, engine)
        assert harness.clock.now() >= due
        assert (again.body, again.travel) == (delivery.body, travel)

    async def test_what_is_delayed_holds_up_nothing_else(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "slow", "slower")
        now = harness.clock.now()
        settlements = [
            (delivery, Later(now + count * harness.moment, delivery.travel))
            for delivery, count in zip(await take(harness, engine, 2), (25, 1_000_000), strict=True)
        ]
        await engine.bus.settle(settlements)
        await publish(engine, "quick")
        assert operations(await take(harness, engine, 1)) == ["quick"]
        assert operations(await take(harness, engine, 1)) == ["slow"]

    async def test_what_is_due_comes_in_the_order_of_its_due_time(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.STRICT_ORDER)
        engine = await opened(harness)
        names = ["c", "a", "d", "b"]
        await publish(engine, *names)
        now = harness.clock.now()
        taken = await take(harness, engine, 4)
        dues = {name: now + (ord(name) - 95) * harness.moment for name in names}
        await engine.bus.settle([(d, Later(dues[d.travel.operation], d.travel)) for d in taken])
        await harness.pass_time(7 * harness.moment)
        await publish(engine, "z")
        assert operations(await take(harness, engine, 5)) == ["a", "b", "c", "d", "z"]

    async def test_what_is_due_in_the_past_is_due_now(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        past = harness.clock.now() - timedelta(days=1)
        await engine.bus.settle([(delivery, Later(past, delivery.travel))])
        assert operations(await take(harness, engine, 1)) == ["a"]

    async def test_setting_the_clock_changes_no_delay(self, harness: EngineHarness) -> None:
        for number, step in enumerate(STEPS):
            before = await opened(harness)
            await publish(before, f"{number}")
            delivery = await take_one(harness, before)
            began = harness.clock.read().steady
            due = harness.clock.now() + 8 * harness.moment
            await before.bus.settle([(delivery, Later(due, delivery.travel))])
            await harness.set_clock(step)
            after = await opened(harness)
            for engine in (before, after):
                await nothing_due(harness, engine)
            again = await take_one(harness, after)
            passed = timedelta(seconds=harness.clock.read().steady - began)
            assert passed >= 7 * harness.moment
            assert list(await after.bus.settle([(again, Done())])) == [True]

    async def test_what_was_published_before_the_clock_was_set_comes_at_once(
        self, harness: EngineHarness
    ) -> None:
        for number, step in enumerate(STEPS):
            before = await opened(harness)
            await publish(before, f"old {number}")
            await harness.set_clock(step)
            after = await opened(harness)
            await publish(after, f"new {number}")
            taken = await take(harness, after, 2)
            assert sorted(operations(taken)) == [f"new {number}", f"old {number}"]
            await after.bus.settle([(delivery, Done()) for delivery in taken])
            await publish(after, f"newer {number}")
            delivery = await take_one(harness, before)
            assert list(await before.bus.settle([(delivery, Done())])) == [True]

    async def test_parked_events_wait_until_their_due_time(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        due = harness.clock.now() + 5 * harness.moment
        travel = delivery.travel.parked_at(harness.clock.now())
        assert list(await engine.bus.settle([(delivery, Parked(due, travel))])) == [True]
        await nothing_due(harness, engine)
        again = await take_one(harness, engine)
        assert harness.clock.now() >= due
        assert again.travel == travel

    async def test_resume_makes_what_is_parked_due_at_once_and_nothing_else(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.PARKING)
        engine, other = await opened(harness), await opened(harness)
        for name, queue in (("a", ORDERS), ("b", ORDERS), ("later", ORDERS), ("mail", MAILS)):
            await engine.bus.publish([message(name, queue=queue.name)])
        taken = await take(harness, engine, 4, ORDERS.name, MAILS.name)
        due = harness.clock.now() + timedelta(days=1)
        for delivery in taken:
            kind = Later if delivery.travel.operation == "later" else Parked
            await engine.bus.settle([(delivery, kind(due, delivery.travel))])
        await nothing_due(harness, engine, ORDERS.name, MAILS.name)
        assert await other.bus.resume(ORDERS.name) == 2
        assert sorted(operations(await take(harness, engine, 2))) == ["a", "b"]
        await nothing_due(harness, engine, ORDERS.name, MAILS.name)
        assert await other.bus.resume(ORDERS.name) == 0
        assert await other.bus.resume(MAILS.name) == 1

    async def test_a_bus_that_finds_no_parked_events_says_so_and_gives_them_when_they_are_due(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        assert engine.bus.finds_parked is (Capability.PARKING not in harness.lacks)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        due = harness.clock.now() + 5 * harness.moment
        await engine.bus.settle([(delivery, Parked(due, delivery.travel))])
        assert await engine.bus.resume(ORDERS.name) == int(engine.bus.finds_parked)
        if not engine.bus.finds_parked:
            await nothing_due(harness, engine)
        assert operations(await take(harness, engine, 1)) == ["a"]
        assert engine.bus.finds_parked or harness.clock.now() >= due
