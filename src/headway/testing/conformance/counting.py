"""What every count says: each accepted operation is in exactly one place."""

from datetime import timedelta

from headway.core.travel import Travel
from headway.core.writes import Update
from headway.ports.bus import Done, HandedBack, Later, Parked, Then
from headway.ports.commit import Unit
from headway.ports.records import Ended
from headway.testing.conformance.balancing import balanced, nothing_astray, one_taken, places
from headway.testing.conformance.examples import (
    MAILS,
    NOBODYS,
    ORDERS,
    PLACED,
    failing,
    message,
    opened,
    publish,
    sent_again,
    take,
    take_one,
    unit,
)
from headway.testing.conformance.harness import Capability, EngineHarness

DAY = timedelta(days=1)


class CountingConformance:
    """Nothing is lost, and nothing is in two places, whatever happens to it."""

    async def test_at_first_there_is_nothing(self, harness: EngineHarness) -> None:
        count = await balanced(await opened(harness), {})
        assert [each.queue for each in count.queues] == sorted([ORDERS.name, MAILS.name])
        assert dict(count.failed) == {ORDERS.failed: 0, MAILS.failed: 0}
        assert (count.done, count.purged) == (0, 0)

    async def test_an_event_is_counted_for_each_queue_that_takes_it(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await engine.bus.publish(
            [message("a", event_type=PLACED), message("b"), message("c", event_type=NOBODYS)]
        )
        count = await balanced(engine, {"ready": 3, "unrouted": 1})
        assert {each.queue: each.ready for each in count.queues} == {
            ORDERS.name: 2,
            MAILS.name: 1,
        }

    async def test_an_engine_that_knows_what_it_accepted_says_so(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.ACCEPTED)
        engine = await opened(harness)
        await publish(engine, "a", "b")
        assert (await engine.places.balance()).accepted == 2

    async def test_the_oldest_is_the_one_that_waits_longest(self, harness: EngineHarness) -> None:
        harness.needs(Capability.OLDEST_EVENT)
        engine = await opened(harness)
        before = harness.clock.now()
        await publish(engine, "a", "b")
        await harness.pass_time(3 * harness.moment)
        await publish(engine, "c")
        by_name = {each.queue: each for each in (await engine.places.balance()).queues}
        oldest = by_name[ORDERS.name].oldest
        assert oldest is not None
        assert abs(oldest - before) < 2 * harness.moment
        assert by_name[MAILS.name].oldest is None

    async def test_every_settlement_has_its_place(self, harness: EngineHarness) -> None:
        harness.needs(Capability.LEASED, Capability.PARKING)
        engine = await opened(harness)
        now = harness.clock.now()
        settlements: dict[str, Then] = {
            "later": Later(now + DAY, Travel(operation="later")),
            "due": Later(now - DAY, Travel(operation="due")),
            "parked": Parked(now + DAY, Travel(operation="parked")),
            "back": HandedBack(),
        }
        await publish(engine, *settlements, "taken")
        taken = {d.travel.operation: d for d in await take(harness, engine, 5)}
        await balanced(engine, {"leased": 5})
        await engine.bus.settle([(taken[name], then) for name, then in settlements.items()])
        await balanced(engine, {"leased": 1, "delayed": 1, "parked": 1, "ready": 2})
        await engine.bus.resume(ORDERS.name)
        await balanced(engine, {"leased": 1, "delayed": 1, "ready": 3})

    async def test_what_is_due_is_ready_and_what_is_parked_stays_parked_until_taken(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.PARKING)
        engine = await opened(harness)
        for name, kind in (("a", Later), ("b", Parked)):
            delivery = await one_taken(harness, engine, name)
            due = harness.clock.now() + 4 * harness.moment
            await engine.bus.settle([(delivery, kind(due, delivery.travel))])
        await balanced(engine, {"delayed": 1, "parked": 1})
        await harness.pass_time(6 * harness.moment)
        await balanced(engine, {"ready": 1, "parked": 1})
        assert len(await take(harness, engine, 2)) == 2

    async def test_what_the_dead_and_the_closed_had_is_counted_once(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.LEASED)
        engine, watcher = await opened(harness), await opened(harness)
        await publish(engine, "a", "b")
        await take(harness, engine, 2)
        await engine.bus.close()
        await balanced(watcher, {"ready": 2})
        for suspects in (0, 0, 2):
            engine = await opened(harness)
            await take(harness, engine, 2)
            count = await balanced(watcher, {"leased": 2})
            assert sum(each.suspects for each in count.queues) == suspects
            await harness.kill(engine)
        engine = await opened(harness)
        (delivery, _) = await take(harness, engine, 2)
        await engine.bus.settle([(delivery, Later(harness.clock.now() + DAY, delivery.travel))])
        count = await balanced(watcher, {"leased": 1, "delayed": 1})
        assert sum(each.suspects for each in count.queues) == 1

    async def test_every_end_is_done(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS, Capability.LEASED)
        engine = await opened(harness)
        ends = (Ended.DONE, Ended.DUPLICATE, Ended.SUPERSEDED)
        await publish(engine, *ends)
        taken = await take(harness, engine, 3)
        out = (message("out", event_type=PLACED),)
        units = [
            unit(delivery, harness.clock.now(), ended=ended, outgoing=out if not n else ())
            for n, (delivery, ended) in enumerate(zip(taken, ends, strict=True))
        ]
        await engine.finisher.finish(units)
        count = await balanced(engine, {"done": 3, "ready": 2})
        assert count.purged == 0

    async def test_operations_with_one_key_are_all_done(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        await publish(engine, "a", "b", "c")
        units = [
            unit(delivery, harness.clock.now(), key="the same")
            for delivery in await take(harness, engine, 3)
        ]
        await engine.finisher.finish(units)
        await engine.finisher.finish(units)
        await balanced(engine, {"done": 3})

    async def test_a_refused_unit_moves_nothing(self, harness: EngineHarness) -> None:
        harness.needs(Capability.LEASED)
        engine = await opened(harness)
        delivery = await one_taken(harness, engine)
        writes = (Update("docs", "nobody", {"a": 1}),)
        out = (message("out"),)
        await engine.finisher.finish(
            [unit(delivery, harness.clock.now(), writes=writes, outgoing=out)]
        )
        await balanced(engine, {"leased": 1})

    async def test_a_lost_unit_moves_nothing(self, harness: EngineHarness) -> None:
        harness.needs(Capability.ONE_COMMIT)
        engine = await opened(harness)
        delivery = await one_taken(harness, engine)
        await harness.kill(engine)
        other = await opened(harness)
        again = await take_one(harness, other)
        later = Later(harness.clock.now() + DAY, delivery.travel)
        await engine.finisher.finish([unit(delivery, harness.clock.now())])
        await engine.finisher.finish([Unit(delivery=delivery, then=later)])
        await balanced(other, {"leased": 1})
        await other.finisher.finish([unit(again, harness.clock.now())])
        await balanced(other, {"done": 1})

    async def test_what_failed_is_a_letter_until_somebody_decides(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.RECORDS, Capability.LEASED, Capability.LEASED)
        engine = await opened(harness)
        letters = []
        for name in ("kept", "purged", "requeued"):
            failed = failing(await one_taken(harness, engine, name), harness.clock.now())
            await engine.finisher.finish([failed])
            assert failed.letter is not None
            letters.append(failed.letter)
        count = await balanced(engine, {"failed": 3})
        assert dict(count.failed) == {ORDERS.failed: 3, MAILS.failed: 0}
        await engine.letters.remove(ORDERS.failed, [letters[1].letter_id])
        count = await balanced(engine, {"failed": 2, "done": 1})
        assert count.purged == 1
        again = sent_again(letters[2])
        await engine.letters.requeue(ORDERS.failed, letters[2].letter_id, again)
        await balanced(engine, {"failed": 1, "done": 1, "ready": 1})
        delivery = await take_one(harness, engine)
        await balanced(engine, {"failed": 1, "done": 1, "leased": 1})
        # It fails again, is sent again and comes to a good end.
        failed = failing(delivery, harness.clock.now())
        await engine.finisher.finish([failed])
        await balanced(engine, {"failed": 2, "done": 1})
        assert failed.letter is not None
        again = sent_again(failed.letter)
        await engine.letters.requeue(ORDERS.failed, failed.letter.letter_id, again)
        delivery = await take_one(harness, engine)
        await engine.finisher.finish([unit(delivery, harness.clock.now())])
        count = await balanced(engine, {"failed": 1, "done": 2})
        assert count.purged == 1

    async def test_what_is_forgotten_is_not_missed(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        now = harness.clock.now()
        for name in ("a", "b"):
            await engine.finisher.finish([unit(await one_taken(harness, engine, name), now - DAY)])
        await publish(engine, "c")
        assert await engine.records.forget(now, 1) == 1
        count = await engine.places.balance()
        if count.accepted is not None:
            assert count.accepted == sum(places(count).values())
        await nothing_astray(engine)

    async def test_what_somebody_removed_by_hand_is_named(self, harness: EngineHarness) -> None:
        harness.needs(Capability.ACCEPTED, Capability.BY_HAND)
        engine = await opened(harness)
        await publish(engine, *(f"operation-{number}" for number in range(5)))
        for name in ("operation-1", "operation-3"):
            await harness.remove_by_hand(name)
        count = await engine.places.balance()
        assert places(count) == places(await engine.places.depths()) == {"ready": 3}
        assert count.accepted == 5
        number, astray = await engine.places.astray(10)
        assert number == 2
        assert {(each.operation, each.queue, each.fault) for each in astray} == {
            ("operation-1", ORDERS.name, "missing"),
            ("operation-3", ORDERS.name, "missing"),
        }
        number, astray = await engine.places.astray(1)
        assert (number, len(astray)) == (2, 1)

    async def test_what_is_removed_from_one_queue_is_missed_there(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.ACCEPTED, Capability.BY_HAND)
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=PLACED)])
        delivery = await take_one(harness, engine, MAILS.name)
        await engine.finisher.finish([unit(delivery, harness.clock.now())])
        await harness.remove_by_hand("a")
        number, (astray,) = await engine.places.astray(10)
        assert (number, astray.queue, astray.fault) == (1, ORDERS.name, "missing")

    async def test_workers_are_counted_while_they_are_there(self, harness: EngineHarness) -> None:
        harness.needs(Capability.WORKERS)
        first, second, third = [await opened(harness) for _ in range(3)]
        assert (await third.places.balance()).workers == 3
        await first.bus.close()
        assert (await third.places.balance()).workers == 2
        await harness.kill(second)
        for _ in range(10):  # it may take a while to notice
            if (await third.places.balance()).workers == 1:
                break
            await harness.pass_time(harness.moment)
        assert (await third.places.balance()).workers == 1

    async def test_counting_disturbs_nobody(self, harness: EngineHarness) -> None:
        harness.needs(Capability.LEASED)
        engine = await opened(harness)
        first = await one_taken(harness, engine)
        await publish(engine, "b")
        for _ in range(3):
            await balanced(await opened(harness), {"leased": 1, "ready": 1})
        assert list(await engine.bus.settle([(first, Done())])) == [True]
        assert (await take_one(harness, engine)).returns == 0
