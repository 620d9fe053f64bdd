"""What every bus does when a taker dies, lets go or closes: to whom a delivery belongs."""

import asyncio
from datetime import timedelta

import msgspec

from headway.ports.bus import SUSPECT_AFTER, Delivery, Done, HandedBack, Later, Parked, Then
from headway.ports.engine import Engine
from headway.testing.conformance.examples import (
    nothing_due,
    opened,
    operations,
    publish,
    take,
    take_one,
    well_travelled,
)
from headway.testing.conformance.harness import Capability, EngineHarness


async def came_back(harness: EngineHarness, name: str = "a") -> tuple[Engine, Delivery]:
    """Publish, take, die: give the dead engine and what it still has in its hands."""
    engine = await opened(harness)
    await publish(engine, name)
    delivery = await take_one(harness, engine)
    await harness.kill(engine)
    return engine, delivery


async def suspected(harness: EngineHarness, name: str = "a") -> tuple[Engine, Delivery]:
    """Let takers of an event die until it is a suspect: give the next one that takes it."""
    await came_back(harness, name)
    for _ in range(SUSPECT_AFTER - 1):
        engine = await opened(harness)
        await take_one(harness, engine)
        await harness.kill(engine)
    engine = await opened(harness)
    return engine, await take_one(harness, engine)


class TakingsConformance:
    """A delivery belongs to its taker until it is settled, or until the taker is gone."""

    async def test_what_a_live_taker_has_stays_with_it(self, harness: EngineHarness) -> None:
        engine, other = await opened(harness), await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        for _ in range(5):
            await nothing_due(harness, other)
        assert list(await engine.bus.settle([(delivery, Done())])) == [True]

    async def test_what_a_dead_taker_had_comes_back_one_return_higher(
        self, harness: EngineHarness
    ) -> None:
        _, delivery = await came_back(harness)
        for returns in (1, 2, 3):
            engine = await opened(harness)
            again = await take_one(harness, engine)
            assert (again.returns, again.body) == (returns, delivery.body)
            assert again.travel.failures == delivery.travel.failures
            await harness.kill(engine)

    async def test_what_nobody_had_taken_does_not_count_a_return(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b")
        await take(harness, engine, 1)
        await harness.kill(engine)
        taken = await take(harness, await opened(harness), 2)
        assert sorted(delivery.returns for delivery in taken) == [0, 1]

    async def test_a_worker_is_gone_when_it_died_and_not_before(
        self, harness: EngineHarness
    ) -> None:
        dead, alive, asker = [await opened(harness) for _ in range(3)]
        for engine in (dead, alive, asker):
            await nothing_due(harness, engine)  # it takes from now on
        workers = [engine.bus.worker for engine in (dead, alive, asker)]
        assert len(set(workers)) == 3
        asked = [*workers, "of-another-engine", ""]
        assert list(await asker.bus.gone(asked)) == []
        await harness.kill(dead)
        gone: list[str] = []
        for _ in range(80):
            gone = list(await asker.bus.gone(asked))
            if gone:
                break
            await harness.pass_time(harness.moment / 4)
        assert gone == workers[:1]

    async def test_a_worker_owns_what_it_has_taken(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        assert engine.bus.owns(await take_one(harness, engine))

    async def test_the_first_taking_is_remembered(self, harness: EngineHarness) -> None:
        harness.needs(Capability.FIRST_SEEN)
        before = harness.clock.now()
        _, delivery = await came_back(harness)
        seen = delivery.travel.first_seen
        assert seen is not None
        assert timedelta() <= seen - before < 5 * harness.moment
        await harness.pass_time(harness.moment)
        again = await take_one(harness, await opened(harness))
        assert again.travel == delivery.travel

    async def test_who_lost_a_delivery_can_do_nothing_with_it(self, harness: EngineHarness) -> None:
        dead, delivery = await came_back(harness)
        later = harness.clock.now() + timedelta(days=1)
        thens: tuple[Then, ...] = (
            Done(),
            Later(later, delivery.travel),
            Parked(later, delivery.travel),
            HandedBack(),
            HandedBack(later),
        )
        engine = await opened(harness)
        again = await take_one(harness, engine)
        for then in thens:
            assert list(await dead.bus.settle([(delivery, then)])) == [False]
        assert await dead.bus.begin(delivery) is False
        await nothing_due(harness, engine)
        assert list(await engine.bus.settle([(again, HandedBack())])) == [True]
        last = await take_one(harness, engine)
        assert (last.returns, last.begins, last.travel) == (1, 0, again.travel)
        assert list(await engine.bus.settle([(last, Done())])) == [True]
        await nothing_due(harness, engine)

    async def test_what_came_back_can_not_be_settled_even_before_somebody_takes_it(
        self, harness: EngineHarness
    ) -> None:
        dead, delivery = await came_back(harness)
        await harness.pass_time(10 * harness.moment)
        assert list(await dead.bus.settle([(delivery, Done())])) == [False]
        assert (await take_one(harness, await opened(harness))).returns == 1

    async def test_an_old_delivery_of_the_same_taker_is_lost_too(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        old = await take_one(harness, engine)
        await engine.bus.settle([(old, HandedBack())])
        new = await take_one(harness, engine)
        assert list(await engine.bus.settle([(old, Done())])) == [False]
        assert await engine.bus.begin(old) is False
        assert list(await engine.bus.settle([(new, Done())])) == [True]

    async def test_one_lost_delivery_does_not_spoil_the_settling_of_others(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b", "c")
        first, second, third = await take(harness, engine, 3)
        await engine.bus.settle([(second, Done())])
        answers = await engine.bus.settle([(first, Done()), (second, Done()), (third, Done())])
        assert list(answers) == [True, False, True]

    async def test_what_is_handed_back_is_ready_as_it_was(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        assert list(await engine.bus.settle([(delivery, HandedBack())])) == [True]
        again = await take_one(harness, await opened(harness))
        assert (again.returns, again.begins, again.body) == (0, 0, delivery.body)
        assert again.travel.attempt == delivery.travel.attempt

    async def test_what_is_handed_back_keeps_its_place(self, harness: EngineHarness) -> None:
        harness.needs(Capability.STRICT_ORDER, Capability.OLD_PLACE)
        engine = await opened(harness)
        await publish(engine, "a", "b", "c", "d")
        first, second = await take(harness, engine, 2)
        await engine.bus.settle([(second, HandedBack()), (first, HandedBack())])
        assert operations(await take(harness, engine, 4)) == ["a", "b", "c", "d"]

    async def test_handing_back_keeps_the_returns(self, harness: EngineHarness) -> None:
        await came_back(harness)
        engine = await opened(harness)
        delivery = await take_one(harness, engine)
        await engine.bus.settle([(delivery, HandedBack())])
        assert (await take_one(harness, engine)).returns == 1

    async def test_what_is_handed_back_for_later_comes_as_it_was_when_it_is_due(
        self, harness: EngineHarness
    ) -> None:
        await came_back(harness)
        engine = await opened(harness)
        delivery = await take_one(harness, engine)
        due = harness.clock.now() + 3 * harness.moment
        assert list(await engine.bus.settle([(delivery, HandedBack(due))])) == [True]
        again = await take_one(harness, engine)
        assert harness.clock.now() >= due
        assert (again.returns, again.body) == (1, delivery.body)
        assert again.travel.attempt == delivery.travel.attempt

    async def test_what_is_handed_back_for_later_can_have_something_else_beside_it(
        self, harness: EngineHarness
    ) -> None:
        await came_back(harness)
        engine = await opened(harness)
        delivery = await take_one(harness, engine)
        due = harness.clock.now() + 3 * harness.moment
        travel = well_travelled(delivery.travel.operation, harness.clock.now())
        assert list(await engine.bus.settle([(delivery, HandedBack(due, travel))])) == [True]
        again = await take_one(harness, engine)
        assert harness.clock.now() >= due
        assert (again.returns, again.body, again.travel) == (1, delivery.body, travel)

    async def test_a_begin_is_kept_when_the_taker_dies(self, harness: EngineHarness) -> None:
        harness.needs(Capability.BEGINS)
        engine, delivery = await suspected(harness)
        for begins in range(3):
            assert (delivery.returns, delivery.begins) == (SUSPECT_AFTER + begins, begins)
            assert await engine.bus.begin(delivery) is True
            await harness.kill(engine)
            engine = await opened(harness)
            delivery = await take_one(harness, engine)

    async def test_a_begin_is_taken_back_when_it_is_handed_back(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.BEGINS)
        engine, delivery = await suspected(harness)
        assert await engine.bus.begin(delivery)
        await harness.kill(engine)
        engine = await opened(harness)
        delivery = await take_one(harness, engine)
        returns = delivery.returns
        assert await engine.bus.begin(delivery)
        await engine.bus.settle([(delivery, HandedBack())])
        again = await take_one(harness, engine)
        assert (again.returns, again.begins) == (returns, 1)
        # This time it is not begun, so there is nothing to take back.
        await engine.bus.settle([(again, HandedBack())])
        assert (await take_one(harness, engine)).begins == 1

    async def test_a_suspect_that_is_handed_back_for_later_stays_one(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.BEGINS)
        engine, delivery = await suspected(harness, "a")
        assert await engine.bus.begin(delivery)
        due = harness.clock.now() + 2 * harness.moment
        await engine.bus.settle([(delivery, HandedBack(due))])
        again = await take_one(harness, engine)
        assert harness.clock.now() >= due
        assert (again.returns, again.begins) == (delivery.returns, delivery.begins)

    async def test_an_end_makes_returns_and_begins_forgotten(self, harness: EngineHarness) -> None:
        harness.needs(Capability.BEGINS)
        for kind in (Later, Parked):
            engine, delivery = await suspected(harness, kind.__name__)
            assert await engine.bus.begin(delivery)
            travel = msgspec.structs.replace(
                well_travelled(kind.__name__, harness.clock.now()), parked_since=None
            )
            await engine.bus.settle([(delivery, kind(harness.clock.now(), travel))])
            again = await take_one(harness, engine)
            assert (again.returns, again.begins) == (0, 0)
            assert again.travel == travel
            await engine.bus.settle([(again, Done())])
            await engine.bus.close()

    async def test_all_but_some_can_be_handed_back_from_another_thread(
        self, harness: EngineHarness
    ) -> None:
        engine, other = await opened(harness), await opened(harness)
        await publish(engine, "a", "b", "c")
        taken = {each.travel.operation: each for each in await take(harness, engine, 3)}
        await engine.bus.begin(taken["b"])
        # As if the event loop were blocked, which would run nothing meanwhile.
        await asyncio.to_thread(
            lambda: asyncio.run(engine.bus.hand_back_all([taken["a"]])),
        )
        back = await take(harness, other, 2)
        assert sorted(operations(back)) == ["b", "c"]
        assert [(delivery.returns, delivery.begins) for delivery in back] == [(0, 0), (0, 0)]
        await harness.kill(engine)
        (lost,) = await take(harness, other, 1)
        assert (lost.travel.operation, lost.returns) == ("a", 1)
        await engine.bus.close()  # it lets go of its connections

    async def test_closing_hands_back_what_is_taken(self, harness: EngineHarness) -> None:
        engine, other = await opened(harness), await opened(harness)
        await publish(engine, "a", "b", "c")
        first, second, _ = await take(harness, engine, 3)
        await engine.bus.settle([(first, Done())])
        await engine.bus.begin(second)
        await engine.bus.close()
        taken = await take(harness, other, 2)
        assert sorted(operations(taken)) == sorted(["b", "c"])
        assert [(delivery.returns, delivery.begins) for delivery in taken] == [(0, 0), (0, 0)]
