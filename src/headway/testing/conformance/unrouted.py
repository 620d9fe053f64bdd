"""What every engine does with events that no service takes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from headway.adapters.system.chance import SystemChance
from headway.ports.bus import Done, Queue
from headway.ports.commit import Outcome
from headway.ports.engine import Engine
from headway.ports.unrouted import MALFORMED, OnStep, Unrouted
from headway.runtime.unrouted import UnroutedEvents
from headway.testing.conformance.balancing import nothing_astray
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    PLACED,
    QUEUES,
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

SHIPPED = "OrderShipped"
REFUNDED = "OrderRefunded"
SHIPPING = Queue(name="shipping.orders", event_types=(SHIPPED,), failed="shipping.failed")
BOOKS = Queue(name="books.orders", event_types=(SHIPPED, REFUNDED), failed="books.failed")


class UnroutedConformance:
    """From a publisher without consumers to the first queue that takes the type."""

    # Kept

    async def test_an_event_that_no_queue_takes_is_kept(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        before = harness.clock.now()
        numbers = await engine.bus.publish(
            [message("a", event_type=SHIPPED), message("b"), message("c", event_type=REFUNDED)]
        )
        assert list(numbers) == [0, 1, 0]
        assert dict(await engine.unrouted.counts()) == {SHIPPED: 1, REFUNDED: 1}
        assert (await engine.places.depths()).unrouted == 2
        (kept,) = await engine.unrouted.read(10, event_types=[SHIPPED])
        assert (kept.event_type, kept.travel.operation) == (SHIPPED, "a")
        assert kept.body == message("a").body
        second = timedelta(seconds=1)
        assert before - second <= kept.at <= harness.clock.now() + second
        assert operations(await take(harness, engine, 1)) == ["b"]

    async def test_an_event_that_needs_no_consumer_is_dropped(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        messages = [
            message("a", event_type=SHIPPED, needs_consumer=False),
            message("b", event_type=PLACED, needs_consumer=False),
            message("c", event_type=SHIPPED),
        ]
        assert list(await engine.bus.publish(messages)) == [0, 2, 0]
        assert dict(await engine.unrouted.counts()) == {SHIPPED: 1}
        assert operations(await take(harness, engine, 1)) == ["b"]

    async def test_kept_events_outlive_their_publisher(self, harness: EngineHarness) -> None:
        first, second = await opened(harness), await opened(harness)
        await first.bus.publish([message("a", event_type=SHIPPED)])
        await harness.kill(first)
        assert dict(await second.unrouted.counts()) == {SHIPPED: 1}

    async def test_kept_events_are_in_one_place(self, harness: EngineHarness) -> None:
        harness.needs(Capability.ACCEPTED)
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=SHIPPED), message("b")])
        count = await engine.places.balance()
        assert (count.unrouted, count.waiting, count.accepted) == (1, 1, 2)
        assert (await engine.places.where(["a"]))["a"] == [f"unrouted {SHIPPED}"]
        await nothing_astray(engine)
        await engine.bus.open([SHIPPING])
        count = await engine.places.balance()
        assert (count.unrouted, count.waiting, count.accepted) == (0, 2, 2)
        assert (await engine.places.where(["a"]))["a"] == [f"ready in {SHIPPING.name}"]
        await nothing_astray(engine)

    async def test_an_id_that_is_published_twice_is_kept_once(self, harness: EngineHarness) -> None:
        harness.needs(Capability.ACCEPTED)
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=SHIPPED)] * 2)
        await engine.bus.publish([message("a", event_type=SHIPPED)])
        await engine.bus.publish([message("a", event_type=REFUNDED)])
        assert dict(await engine.unrouted.counts()) == {SHIPPED: 1, REFUNDED: 1}
        await nothing_astray(engine)

    async def test_what_a_handler_publishes_is_kept_and_named(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b")
        first, second = await take(harness, engine, 2)
        now = harness.clock.now()
        outgoing = (
            message("c", event_type=SHIPPED),
            message("d", event_type=REFUNDED, needs_consumer=False),
            message("e", event_type=PLACED),
        )
        finishes = await engine.finisher.finish(
            [unit(first, now, outgoing=outgoing), unit(second, now)]
        )
        assert [each.outcome for each in finishes] == [Outcome.COMMITTED] * 2
        assert [each.unrouted for each in finishes] == [{SHIPPED}, frozenset()]
        assert dict(await engine.unrouted.counts()) == {SHIPPED: 1}
        assert operations(await take(harness, engine, 1, MAILS.name)) == ["e"]

    # Routed

    async def test_a_new_queue_gets_what_waited_for_it_once(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        body = b' { "spaced" : "\xff\x00" } '
        await engine.bus.publish(
            [message(name, event_type=SHIPPED, body=body) for name in ("a", "b", "c")]
        )
        other = await opened(harness, [SHIPPING])
        taken = await take(harness, other, 3, SHIPPING.name)
        assert sorted(operations(taken)) == ["a", "b", "c"]
        assert {each.body for each in taken} == {body}
        assert dict(await engine.unrouted.counts()) == {}
        assert (await engine.places.depths()).unrouted == 0
        await other.bus.open([SHIPPING])
        await other.bus.settle([(each, Done()) for each in taken])
        third = await opened(harness, [SHIPPING])
        await nothing_due(harness, third, SHIPPING.name)

    async def test_a_new_type_of_an_old_queue_gets_what_waited(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=SHIPPED)])
        more = Queue(name=ORDERS.name, event_types=(SHIPPED,), failed=ORDERS.failed)
        await engine.bus.open([more])
        assert operations(await take(harness, engine, 1)) == ["a"]

    async def test_queues_that_are_declared_together_all_get_it(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=SHIPPED)])
        await engine.bus.open([SHIPPING, BOOKS])
        assert operations(await take(harness, engine, 1, SHIPPING.name)) == ["a"]
        assert operations(await take(harness, engine, 1, BOOKS.name)) == ["a"]
        assert dict(await engine.unrouted.counts()) == {}

    async def test_a_later_queue_gets_what_is_published_from_then_on(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=SHIPPED)])
        await engine.bus.open([SHIPPING])
        await engine.bus.open([BOOKS])
        await engine.bus.publish([message("b", event_type=SHIPPED)])
        taken = await take(harness, engine, 2, SHIPPING.name)
        assert sorted(operations(taken)) == ["a", "b"]
        assert operations(await take(harness, engine, 1, BOOKS.name)) == ["b"]
        await nothing_due(harness, engine, BOOKS.name)

    async def test_what_still_has_no_queue_stays(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await engine.bus.publish(
            [message("a", event_type=SHIPPED), message("b", event_type=REFUNDED)]
        )
        await engine.bus.open([SHIPPING])
        assert dict(await engine.unrouted.counts()) == {REFUNDED: 1}
        assert await engine.unrouted.route() == 0
        assert await engine.unrouted.route([SHIPPED, REFUNDED]) == 0
        assert dict(await engine.unrouted.counts()) == {REFUNDED: 1}

    async def test_what_waited_is_finished_once(self, harness: EngineHarness) -> None:
        """An event that is published again after it was routed is recognised, and not run twice."""
        harness.needs(Capability.RECORDS)
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=SHIPPED)])
        await engine.bus.open([SHIPPING])
        delivery = await take_one(harness, engine, SHIPPING.name)
        (finish,) = await engine.finisher.finish([unit(delivery, harness.clock.now())])
        assert finish.outcome is Outcome.COMMITTED
        await engine.bus.publish([message("a", event_type=SHIPPED)])
        again = await engine.bus.take([SHIPPING.name], 1, harness.moment)
        for each in again:
            (finish,) = await engine.finisher.finish([unit(each, harness.clock.now())])
            assert finish.outcome is Outcome.DUPLICATE
        await nothing_astray(engine)

    async def test_publishing_beside_a_declaration_leaves_nothing_behind(
        self, harness: EngineHarness
    ) -> None:
        engine, other = await opened(harness), await harness.open_engine()
        names = [f"operation-{number}" for number in range(40)]

        async def publishing() -> None:
            for name in names:
                await engine.bus.publish([message(name, event_type=SHIPPED)])

        await asyncio.gather(publishing(), other.bus.open([SHIPPING]))
        await other.unrouted.route([SHIPPED])
        taken = await take(harness, other, len(names), SHIPPING.name)
        assert sorted(operations(taken)) == sorted(names)
        assert dict(await engine.unrouted.counts()) == {}

    # Looked at, and removed

    async def test_reading_removes_nothing(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        names = [f"operation-{number}" for number in range(5)]
        await engine.bus.publish([message(name, event_type=SHIPPED) for name in names])
        await engine.bus.publish([message("other", event_type=REFUNDED)])
        for _ in range(2):
            assert await _named(engine, 10) == [*names, "other"]
        assert await _named(engine, 2) == names[:2]
        found = await engine.unrouted.read(
            10, event_types=[SHIPPED, REFUNDED], operations=["other"]
        )
        assert [each.event_type for each in found] == [REFUNDED]
        assert list(await engine.unrouted.read(10, event_types=["NoSuchType"])) == []

    async def test_the_oldest_of_each_type_is_known(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        assert dict(await engine.unrouted.oldest()) == {}
        for name, event_type in (("a", SHIPPED), ("b", REFUNDED), ("c", SHIPPED)):
            await engine.bus.publish([message(name, event_type=event_type)])
            await harness.pass_time(harness.moment)
        first, second, _ = await engine.unrouted.read(10)
        assert dict(await engine.unrouted.oldest()) == {SHIPPED: first.at, REFUNDED: second.at}

    async def test_the_types_that_queues_take_are_known(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=SHIPPED)])
        expected = {each for queue in QUEUES for each in queue.event_types}
        assert set(await engine.unrouted.taken_types()) == expected
        for event_type in (*expected, SHIPPED):
            takers = sorted(each.name for each in QUEUES if event_type in each.event_types)
            assert list(await engine.unrouted.takers(event_type)) == takers

    async def test_purging_removes_what_is_named_and_nothing_else(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        names = ("a", "b", "c")
        await engine.bus.publish([message(name, event_type=SHIPPED) for name in names])
        await engine.bus.publish([message("d", event_type=REFUNDED)])
        assert await engine.unrouted.purge() == 0
        assert await engine.unrouted.purge([]) == 0
        assert await engine.unrouted.purge([REFUNDED], operations=["a"]) == 0
        assert await engine.unrouted.purge(operations=["b", "none such"]) == 1
        assert await _named(engine, 10) == ["a", "c", "d"]
        assert await engine.unrouted.purge([SHIPPED]) == 2
        assert dict(await engine.unrouted.counts()) == {REFUNDED: 1}
        await nothing_astray(engine)
        count = await engine.places.balance()
        if count.accepted is not None:
            assert (count.unrouted, count.done, count.purged, count.accepted) == (1, 3, 3, 4)

    async def test_an_event_without_a_type_is_malformed_and_never_routed(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await engine.bus.publish([message("a", event_type=SHIPPED), message("b", event_type="")])
        assert dict(await engine.unrouted.counts()) == {SHIPPED: 1, MALFORMED: 1}
        (found,) = await engine.unrouted.read(10, event_types=[MALFORMED])
        assert (found.event_type, found.travel.operation) == (MALFORMED, "b")
        assert dict(await engine.unrouted.oldest())[MALFORMED] == found.at
        await engine.bus.open([SHIPPING])
        assert await engine.unrouted.route() == 0
        assert dict(await engine.unrouted.counts()) == {MALFORMED: 1}
        assert (await engine.places.depths()).unrouted == 1
        await nothing_astray(engine)
        assert await engine.unrouted.purge([MALFORMED]) == 1
        assert dict(await engine.unrouted.counts()) == {}
        await nothing_astray(engine)

    # Told of

    async def test_who_opens_a_queue_is_told_what_it_receives(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await engine.bus.publish(
            [
                *[message(name, event_type=SHIPPED) for name in ("a", "b", "c")],
                message("d", event_type=REFUNDED),
                message("e", event_type="OrderLost"),
            ]
        )
        told: list[dict[str, int]] = []
        await engine.bus.open([SHIPPING, BOOKS], lambda routed: told.append(dict(routed)))
        await engine.bus.open([SHIPPING, BOOKS], lambda routed: told.append(dict(routed)))
        assert told == [{SHIPPED: 3, REFUNDED: 1}]

    async def test_a_purge_that_is_interrupted_records_what_it_removed(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        names = [f"operation-{number}" for number in range(1_200)]
        await engine.bus.publish([message(name, event_type=SHIPPED) for name in names])
        ctrl_c = CtrlC(engine.unrouted)
        operated = replace(engine, unrouted=cast("Unrouted", ctrl_c))
        events = UnroutedEvents(operated, harness.clock, SystemChance())
        ctrl_c.stops = asyncio.create_task(events.purge([SHIPPED]))
        with pytest.raises(asyncio.CancelledError):
            await ctrl_c.stops
        left = (await engine.unrouted.counts()).get(SHIPPED, 0)
        assert left < len(names)
        (entry,) = await events.history()
        assert (entry["outcome"], entry["error"]) == ("stopped", "interrupted")
        assert (entry["chosen"], entry["done"]) == (len(names), len(names) - left)


class CtrlC:
    """Interrupts an operator when the first step of a purge is complete."""

    def __init__(self, unrouted: Unrouted) -> None:
        self._unrouted = unrouted
        self.stops: asyncio.Task[object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unrouted, name)

    async def purge(self, types: Sequence[str], operations: None, on_step: OnStep) -> int:
        def interrupt(gone: Mapping[str, int]) -> None:
            assert self.stops is not None
            self.stops.cancel()
            on_step(gone)

        return await self._unrouted.purge(types, operations=operations, on_step=interrupt)


async def _named(engine: Engine, limit: int) -> list[str]:
    return [each.travel.operation for each in await engine.unrouted.read(limit)]
