"""Where single operations are, and that those which a person moves are in one place too."""

from datetime import timedelta

import msgspec

from headway.core.beginning import sweep_operation
from headway.core.letter import Letter
from headway.core.travel import Travel
from headway.ports.bus import Delivery, Later, Message, Parked
from headway.ports.engine import Engine
from headway.ports.records import Ended
from headway.testing.conformance.balancing import balanced, nothing_astray, one_taken
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    PLACED,
    failing,
    key_of,
    letter_for,
    message,
    opened,
    publish,
    sent_again,
    take,
    take_one,
    unit,
    unseen,
)
from headway.testing.conformance.harness import Capability, EngineHarness

DAY = timedelta(days=1)


async def failed(harness: EngineHarness, engine: Engine, delivery: Delivery) -> Letter:
    """Let a delivery end without success, and give its letter."""
    failure = failing(delivery, harness.clock.now())
    await engine.finisher.finish([failure])
    assert failure.letter is not None
    return failure.letter


async def move(engine: Engine, letter: Letter, to: str) -> None:
    """Requeue a letter into another queue than the one that it came from."""
    again = msgspec.structs.replace(sent_again(letter), queue=to)
    assert await engine.letters.requeue(ORDERS.failed, letter.letter_id, again)


def swept(one: str, generation: int) -> Message:
    """Make the event that a sweeper publishes for a document."""
    operation = sweep_operation("docs", one, generation)
    travel = Travel(operation=operation, generation=f"s{generation}")
    return message(operation, travel=travel, queue=ORDERS.name)


class WhereaboutsConformance:
    """An operation that is looked for is found where it is counted."""

    async def test_each_place_is_named_with_its_queue(self, harness: EngineHarness) -> None:
        harness.needs(Capability.LOOKING, Capability.PARKING, Capability.RECORDS)
        engine = await opened(harness)
        later = harness.clock.now() + DAY
        await publish(engine, "later", "parked", "leased", "done", "failed", "ready")
        taken = {each.travel.operation: each for each in await take(harness, engine, 5)}
        await engine.bus.settle(
            [
                (taken["later"], Later(later, Travel(operation="later"))),
                (taken["parked"], Parked(later, Travel(operation="parked"))),
            ]
        )
        await engine.finisher.finish([unit(taken["done"], harness.clock.now())])
        await failed(harness, engine, taken["failed"])
        expected = {
            "later": [f"delayed in {ORDERS.name}"],
            "parked": [f"parked in {ORDERS.name}"],
            "leased": [f"leased in {ORDERS.name}"],
            "done": [f"done in {ORDERS.name}"],
            "failed": [f"failed in {ORDERS.failed}"],
            "ready": [f"ready in {ORDERS.name}"],
        }
        for _ in range(2):  # looking disturbs nobody
            found = await engine.places.where([*expected, "nobody's", "ready"])
            assert {name: list(places) for name, places in found.items()} == expected
        assert dict(await engine.places.where(["ready"])) == {"ready": expected["ready"]}
        assert dict(await engine.places.where([])) == {}

    async def test_an_operation_is_found_in_every_queue_that_took_it(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.LOOKING, Capability.RECORDS)
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=PLACED)])
        delivery = await take_one(harness, engine, MAILS.name)
        await engine.finisher.finish([unit(delivery, harness.clock.now())])
        found = await engine.places.where(["a"])
        assert sorted(found["a"]) == [f"done in {MAILS.name}", f"ready in {ORDERS.name}"]

    async def test_many_operations_can_be_looked_for_at_once(self, harness: EngineHarness) -> None:
        harness.needs(Capability.LOOKING)
        engine = await opened(harness)
        names = [f"käse ✓ '\"% {number}" for number in range(700)]
        await publish(engine, *names[:300])
        found = await engine.places.where([*names, *(f"nobody's {n}" for n in range(60_000))])
        assert sorted(found) == sorted(names[:300])
        assert {tuple(places) for places in found.values()} == {(f"ready in {ORDERS.name}",)}

    async def test_a_letter_that_nobody_published_is_found_too(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        letter = letter_for(Travel(operation="a"), harness.clock.now())
        await engine.letters.write(MAILS.failed, [letter])
        found = await engine.places.where(["a"])
        assert list(found["a"]) == [f"failed in {MAILS.failed}"]

    async def test_what_was_requeued_is_where_it_is_now(self, harness: EngineHarness) -> None:
        harness.needs(Capability.LOOKING, Capability.RECORDS)
        engine = await opened(harness)
        letter = await failed(harness, engine, await one_taken(harness, engine))
        await engine.letters.requeue(ORDERS.failed, letter.letter_id, sent_again(letter))
        assert list((await engine.places.where(["a"]))["a"]) == [f"ready in {ORDERS.name}"]
        delivery = await take_one(harness, engine)
        await engine.finisher.finish([unit(delivery, harness.clock.now())])
        assert list((await engine.places.where(["a"]))["a"]) == [f"done in {ORDERS.name}"]

    async def test_what_was_accepted_and_is_nowhere_is_known_and_has_no_place(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.ACCEPTED, Capability.BY_HAND)
        engine = await opened(harness)
        await publish(engine, "a", "b")
        await harness.remove_by_hand("a")
        found = await engine.places.where(["a", "b", "c"])
        assert {name: list(places) for name, places in found.items()} == {
            "a": [],
            "b": [f"ready in {ORDERS.name}"],
        }

    async def test_what_was_forgotten_is_not_known(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        now = harness.clock.now()
        await engine.finisher.finish([unit(await one_taken(harness, engine), now - DAY)])
        await engine.records.forget(now, 10)
        assert dict(await engine.places.where(["a"])) == {}

    # Moved by a person

    async def test_what_was_moved_is_done_here_and_goes_on_there(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.LOOKING, Capability.RECORDS)
        engine = await opened(harness)
        delivery = await one_taken(harness, engine)
        letter = await failed(harness, engine, delivery)
        await move(engine, letter, MAILS.name)
        (record,) = (await engine.records.find([key_of(delivery)])).values()
        assert record.ended is Ended.MOVED
        count = await balanced(engine, {"done": 1, "ready": 1})
        assert count.purged == 0
        assert sorted((await engine.places.where(["a"]))["a"]) == [
            f"done in {ORDERS.name}",
            f"ready in {MAILS.name}",
        ]
        there = await take_one(harness, engine, MAILS.name)
        await engine.finisher.finish([unit(there, harness.clock.now())])
        await balanced(engine, {"done": 2})

    async def test_what_was_requeued_first_and_then_moved_has_one_end_here(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        letter = await failed(harness, engine, await one_taken(harness, engine))
        await engine.letters.requeue(ORDERS.failed, letter.letter_id, sent_again(letter))
        letter = await failed(harness, engine, await take_one(harness, engine))
        await move(engine, letter, MAILS.name)
        await balanced(engine, {"done": 1, "ready": 1})

    async def test_what_is_moved_there_and_back_is_in_one_place_each_time(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.BOOKS, Capability.RECORDS, Capability.LEASED)
        engine = await opened(harness)
        letter = await failed(harness, engine, await one_taken(harness, engine))
        await move(engine, letter, MAILS.name)
        letter = await failed(harness, engine, await take_one(harness, engine, MAILS.name))
        await balanced(engine, {"done": 1, "failed": 1})
        await move(engine, letter, ORDERS.name)
        await balanced(engine, {"done": 1, "ready": 1})
        letter = await failed(harness, engine, await take_one(harness, engine))
        await balanced(engine, {"done": 1, "failed": 1})
        await engine.letters.requeue(ORDERS.failed, letter.letter_id, sent_again(letter))
        back = await take_one(harness, engine)
        await balanced(engine, {"done": 1, "leased": 1})
        await engine.finisher.finish([unit(back, harness.clock.now())])
        await balanced(engine, {"done": 2})

    async def test_what_was_moved_is_forgotten_like_other_ends(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.LOOKING, Capability.RECORDS)
        engine = await opened(harness)
        letter = await failed(harness, engine, await one_taken(harness, engine))
        await move(engine, letter, MAILS.name)
        assert await engine.records.forget(harness.clock.now() + DAY, 10) == 1
        assert list((await engine.places.where(["a"]))["a"]) == [f"ready in {MAILS.name}"]
        await nothing_astray(engine)
        count = await engine.places.balance()
        if count.accepted is not None:
            assert count.accepted == count.done + sum(each.ready for each in count.queues) == 2

    # What sweepers publish

    async def test_what_a_sweeper_publishes_again_is_in_its_queue_once(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.ACCEPTED)
        engine, other = await opened(harness), await opened(harness)
        first, second = swept("1", 2), swept("1", 3)
        await engine.bus.publish([first, first])
        await other.bus.publish([first, swept("2", 2)])
        await balanced(engine, {"ready": 2})
        one, two = await take(harness, engine, 2)
        await engine.finisher.finish([unit(each, harness.clock.now()) for each in (one, two)])
        await other.bus.publish([first, second])
        await balanced(engine, {"ready": 1, "done": 2})
        last = await take_one(harness, engine)
        assert unseen(last.travel) == second.travel

    async def test_what_a_sweeper_published_is_in_one_place_to_its_end(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.RECORDS, Capability.LEASED)
        engine = await opened(harness)
        await engine.bus.publish([swept("1", 2), swept("1", 3)])
        await balanced(engine, {"ready": 2})
        first, second = await take(harness, engine, 2)
        letter = await failed(harness, engine, first)
        await engine.finisher.finish([unit(second, harness.clock.now())])
        await balanced(engine, {"failed": 1, "done": 1})
        assert await engine.letters.requeue(ORDERS.failed, letter.letter_id, sent_again(letter))
        await balanced(engine, {"ready": 1, "done": 1})
        again = await take_one(harness, engine)
        await engine.finisher.finish([unit(again, harness.clock.now())])
        await balanced(engine, {"done": 2})
        await engine.records.forget(harness.clock.now() + DAY, 100)
        await balanced(engine, {"done": 2})
