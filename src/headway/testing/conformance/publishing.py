"""What every bus does with events that are published and taken."""

import asyncio

from headway.core.errors import ConfigurationError
from headway.core.travel import Travel
from headway.ports.bus import Done, Later, Queue
from headway.testing.conformance.examples import (
    MAILS,
    NOBODYS,
    ORDERS,
    PATIENCE,
    PLACED,
    QUEUES,
    message,
    nothing_due,
    opened,
    operations,
    publish,
    take,
    take_one,
    unseen,
    well_travelled,
)
from headway.testing.conformance.harness import Capability, EngineHarness


class PublishingConformance:
    """From the publisher into the hands of a taker."""

    # Publishing

    async def test_an_event_goes_to_every_queue_that_takes_its_type(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        numbers = await engine.bus.publish([message("a", event_type=PLACED), message("b")])
        assert list(numbers) == [2, 1]
        assert sorted(operations(await take(harness, engine, 2))) == ["a", "b"]
        assert operations(await take(harness, engine, 1, MAILS.name)) == ["a"]
        await nothing_due(harness, engine, ORDERS.name, MAILS.name)

    async def test_an_event_that_nobody_takes_says_so(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        numbers = await engine.bus.publish([message("a", event_type=NOBODYS), message("b")])
        assert list(numbers) == [0, 1]
        assert operations(await take(harness, engine, 1)) == ["b"]

    async def test_publishing_nothing_is_nothing(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        assert list(await engine.bus.publish([])) == []

    async def test_an_event_straight_to_a_queue_goes_to_nobody_else(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        straight = message("a", event_type=PLACED, queue=MAILS.name)
        elsewhere = message("b", event_type=NOBODYS, queue=MAILS.name)
        assert list(await engine.bus.publish([straight, elsewhere])) == [1, 1]
        taken = await take(harness, engine, 2, MAILS.name)
        assert sorted(operations(taken)) == ["a", "b"]
        assert {delivery.queue for delivery in taken} == {MAILS.name}
        await nothing_due(harness, engine)

    async def test_a_queue_that_was_never_declared_is_refused_and_nothing_is_stored(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        batch = [message("a"), message("b", queue="no.such.queue"), message("c")]
        (error,) = await asyncio.gather(engine.bus.publish(batch), return_exceptions=True)
        assert isinstance(error, ConfigurationError)
        assert "no.such.queue" in str(error)
        await nothing_due(harness, engine)

    async def test_a_bus_says_whether_it_stores_all_or_nothing(
        self, harness: EngineHarness
    ) -> None:
        """What it knows beforehand keeps all of them back in any case, as above."""
        engine = await opened(harness)
        assert engine.bus.atomic_publish is (Capability.ATOMIC_PUBLISH not in harness.lacks)

    async def test_what_was_published_outlives_its_publisher(self, harness: EngineHarness) -> None:
        first, second = await opened(harness), await opened(harness)
        await publish(first, "a", "b")
        await harness.kill(first)
        assert sorted(operations(await take(harness, second, 2))) == ["a", "b"]

    async def test_declaring_again_changes_nothing(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b")
        (delivery,) = await take(harness, engine, 1)
        other = await opened(harness)
        await other.bus.open(QUEUES)
        assert operations(await take(harness, other, 1)) == ["b"]
        await nothing_due(harness, other)
        assert list(await engine.bus.settle([(delivery, Done())])) == [True]

    async def test_who_declares_more_takes_nothing_from_others(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        more = Queue(name=ORDERS.name, event_types=("OrderSent",), failed=ORDERS.failed)
        other = await opened(harness, [more])
        numbers = await other.bus.publish([message("a"), message("b", event_type="OrderSent")])
        assert list(numbers) == [1, 1]
        assert sorted(operations(await take(harness, engine, 2))) == ["a", "b"]

    # What comes out is what went in

    async def test_bytes_come_out_as_they_went_in(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        bodies = {
            "empty": b"",
            "no JSON": b"{not json",
            "no UTF-8": b"\xff\xfe\x00\x80",
            "spaced": b' { "b" : 1 ,\n"a":1.0} ',
            "every byte": bytes(range(256)),
            "a megabyte": bytes(range(256)) * 4096,
        }
        await engine.bus.publish([message(name, body=body) for name, body in bodies.items()])
        taken = await take(harness, engine, len(bodies))
        assert {delivery.travel.operation: delivery.body for delivery in taken} == bodies

    async def test_what_travels_beside_an_event_comes_out_as_it_went_in(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        far = well_travelled("ünïcødé/注文 ✓", harness.clock.now(), attempts=20)
        near = Travel(operation="b", generation="7")
        await engine.bus.publish([message("a", travel=far), message("b", travel=near)])
        taken = {d.travel.operation: d.travel for d in await take(harness, engine, 2)}
        assert taken[far.operation] == far
        assert unseen(taken["b"]) == near

    async def test_a_new_delivery_never_came_back(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        assert (delivery.returns, delivery.begins) == (0, 0)

    # Taking

    async def test_the_oldest_comes_first(self, harness: EngineHarness) -> None:
        harness.needs(Capability.STRICT_ORDER)
        engine = await opened(harness)
        names = [f"operation-{number}" for number in range(20)]
        await publish(engine, *names[:10])
        for name in names[10:]:
            await publish(engine, name)
        assert operations(await engine.bus.take([ORDERS.name], 8)) == names[:8]
        assert operations(await engine.bus.take([ORDERS.name], 100)) == names[8:]

    async def test_the_oldest_of_several_queues_comes_first(self, harness: EngineHarness) -> None:
        harness.needs(Capability.STRICT_ORDER)
        engine = await opened(harness)
        for name, queue in (("a", MAILS), ("b", ORDERS), ("c", MAILS), ("d", ORDERS)):
            await engine.bus.publish([message(name, queue=queue.name)])
            await harness.pass_time(harness.moment)
        taken = await take(harness, engine, 4, ORDERS.name, MAILS.name)
        assert operations(taken) == ["a", "b", "c", "d"]

    async def test_no_more_than_the_limit_is_taken(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b", "c")
        assert len(await engine.bus.take([ORDERS.name], 2, harness.moment)) <= 2
        assert len(await engine.bus.take([ORDERS.name], 0)) == 0

    async def test_only_the_queues_asked_for_are_taken_from(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await engine.bus.publish([message("a", queue=MAILS.name)])
        await nothing_due(harness, engine, ORDERS.name)
        await take_one(harness, engine, MAILS.name)

    async def test_several_takers_never_get_the_same(self, harness: EngineHarness) -> None:
        engines = [await opened(harness) for _ in range(4)]
        names = [f"operation-{number}" for number in range(60)]
        await publish(engines[0], *names)
        taken: list[str] = []
        deadline = harness.clock.now() + PATIENCE
        while len(taken) < len(names) and harness.clock.now() < deadline:
            answers = await asyncio.gather(
                *(engine.bus.take([ORDERS.name], 4, harness.moment) for engine in engines)
            )
            taken += [name for answer in answers for name in operations(answer)]
        assert sorted(taken) == sorted(names)

    async def test_without_patience_an_empty_queue_answers_at_once(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        before = harness.clock.now()
        assert list(await engine.bus.take([ORDERS.name], 1)) == []
        assert harness.clock.now() - before < harness.moment

    async def test_patience_ends(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        before = harness.clock.now()
        assert list(await engine.bus.take([ORDERS.name], 1, 3 * harness.moment)) == []
        assert harness.clock.now() - before >= 3 * harness.moment

    async def test_who_waits_is_woken_by_what_is_published(self, harness: EngineHarness) -> None:
        engine, other = await opened(harness), await opened(harness)
        waiting = asyncio.create_task(engine.bus.take([ORDERS.name], 5, 2 * PATIENCE))
        await harness.pass_time(2 * harness.moment)
        assert not waiting.done()
        await publish(other, "a")
        published = harness.clock.now()
        assert operations(await waiting) == ["a"]
        assert harness.clock.now() - published < PATIENCE

    async def test_who_waits_is_woken_by_what_becomes_due(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        due = harness.clock.now() + 3 * harness.moment
        await engine.bus.settle([(delivery, Later(due, delivery.travel))])
        assert operations(await engine.bus.take([ORDERS.name], 5, 2 * PATIENCE)) == ["a"]
        assert due <= harness.clock.now() < due + PATIENCE

    async def test_it_is_proven_that_events_reach_who_takes(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        began = harness.clock.now()
        await nothing_due(harness, engine)
        proven = await engine.bus.proven()
        while proven is None and harness.clock.now() < began + PATIENCE:
            await nothing_due(harness, engine)
            proven = await engine.bus.proven()
        assert proven is not None
        assert began <= proven <= harness.clock.now()

    async def test_a_taking_that_is_cancelled_takes_nothing(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        waiting = asyncio.create_task(engine.bus.take([ORDERS.name], 5, 15 * harness.moment))
        await harness.pass_time(2 * harness.moment)
        waiting.cancel()
        await asyncio.wait({waiting})
        await publish(engine, "a")
        assert operations(await take(harness, engine, 1)) == ["a"]
