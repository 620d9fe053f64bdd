"""Two versions of one service at once: an event goes to the version that can read it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from headway import DocumentNotFoundError, Event, RetryConfig, Service, Work
from headway.facts import DeadLettered, EventHandedOn, EventRetryScheduled
from headway.operations import FailedQueues
from headway.testing.engines import Worker, memory_engine
from headway.testing.ports import Travel
from headway.testing.trial import Trial
from tests.behaviour.scenes import (
    MINUTE,
    SECOND,
    assert_all_is_accounted_for,
    crash,
    only_letter,
    until,
)

QUEUE = "orders.order.placed"
FAILED = "orders.failed"
GRACE = timedelta(minutes=10)


class One(msgspec.Struct):
    """What version 1 reads."""

    order: str


class Row(msgspec.Struct, array_like=True):
    """Data that is no JSON object."""

    order: int


class Two(msgspec.Struct):
    """What version 2 reads, and version 1 does not."""

    order: int


class Shop:
    """A service in two versions, on one engine."""

    def __init__(self, **settings: Any) -> None:
        self.done: list[tuple[str, Any, int]] = []
        self.versions = {
            "1": self.service("1", One, **settings),
            "2": self.service("2", Two, **settings),
        }
        self.trial = Trial(self.versions["1"])
        self.fails: list[BaseException] = []

    def service(self, version: str, data: type | None, **settings: Any) -> Service:
        service = Service("orders", version=version, **settings)

        @service.on("OrderPlaced", data=data)
        async def place(event: Event, work: Work) -> None:
            if self.fails:
                raise self.fails.pop()
            order = event.data.order if data else event.data["order"]
            self.done.append((version, order, work.attempt))

        return service

    @asynccontextmanager
    async def running(self, *versions: str | Service) -> AsyncIterator[list[Worker]]:
        """Have a worker of each running inside the block."""
        workers = [
            Worker(
                [self.versions[each] if isinstance(each, str) else each],
                memory_engine(self.trial.clock, self.trial.chance, self.trial.state),
                clock=self.trial.clock,
                chance=self.trial.chance,
                observer=self.trial.facts,
                retry=RetryConfig(ttl=timedelta(minutes=5)),
                name=f"worker-{number}",
            )
            for number, each in enumerate(versions)
        ]
        before = self.alive()
        tasks = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            await until(self.trial, lambda: self.alive() == before + len(workers))
            yield workers
        finally:
            for worker in workers:
                worker.stop()
            await asyncio.gather(*tasks)

    def alive(self) -> int:
        state = self.trial.state
        return sum(each.bus not in state.gone for each in state.versions.values())

    async def publish(self, *orders: Any) -> None:
        for order in orders:
            await self.trial.publish("OrderPlaced", {"order": order}, event_id=f"o-{order}")

    def put(self, name: str, body: bytes) -> None:
        self.trial.state.put(QUEUE, body, Travel(operation=name), self.trial.clock.now())

    async def rest(self, at_most: timedelta = timedelta(hours=1)) -> None:
        await until(self.trial, lambda: not self.trial.state.items, at_most)

    async def passed(self, time: timedelta) -> None:
        start = self.trial.clock.now()
        await until(self.trial, lambda: self.trial.clock.now() - start > time, 2 * GRACE)


async def test_events_that_only_the_new_version_reads_are_all_done_by_it() -> None:
    shop = Shop()
    orders = list(range(200))
    async with shop.running("1", "2"):
        await shop.publish(*orders)
        await shop.rest()
    assert sorted(shop.done) == [("2", order, 1) for order in orders]
    handed_on = shop.trial.facts.of(EventHandedOn)
    assert {(fact.version, fact.awaited) for fact in handed_on} == {("1", ("2",))}
    assert shop.trial.facts.of(EventRetryScheduled) == []
    await assert_all_is_accounted_for(shop.trial)


async def test_a_single_version_ends_what_it_cannot_read_at_once() -> None:
    shop = Shop()
    elsewhere = Service("orders", version="2")  # it does not take from the queue
    elsewhere.on("OrderPaid")(lambda event, work: None)
    async with shop.running("1", "1", elsewhere):
        before = shop.trial.clock.now()
        await shop.publish(7)
        await shop.rest()
        assert shop.trial.clock.now() - before < SECOND
    letter = await only_letter(shop.trial)
    assert (letter.abandoned_reason, letter.error_type) == ("non_retryable", "ValidationError")
    assert (letter.version, letter.attempts[-1].version) == ("1", "1")


async def test_what_every_live_version_refused_is_one_letter_that_names_them() -> None:
    shop = Shop()
    async with shop.running("1", "2", "1", "2"):
        before = shop.trial.clock.now()
        await shop.publish(None)
        await shop.rest()
        assert shop.trial.clock.now() - before < MINUTE
    letter = await only_letter(shop.trial)
    assert (letter.abandoned_reason, letter.error_type) == ("non_retryable", "RefusedEventError")
    assert "version '1'" in letter.last_error
    assert "version '2'" in letter.last_error
    assert [each.error_type for each in letter.attempts] == ["ValidationError"]
    assert len(shop.trial.facts.of(DeadLettered)) == 1
    # Requeued, it starts without refusals.
    failed = FailedQueues(shop.trial.engine, shop.trial.clock, shop.trial.chance)
    assert (await failed.requeue(FAILED)).done == 1
    async with shop.running("1", "2", shop.service("3", None)):
        await shop.rest()
    assert shop.done == [("3", None, 1)]
    await assert_all_is_accounted_for(shop.trial)


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("grace", [GRACE, MINUTE])
async def test_a_version_that_stopped_is_awaited_for_its_grace_and_no_longer(
    *, dies: bool, grace: timedelta
) -> None:
    shop = Shop(version_grace=grace)
    async with shop.running("1"):
        async with shop.running("2") as (second,):
            if dies:
                crash(shop.trial, second)
        stopped = shop.trial.clock.now()
        await shop.publish(*range(20))
        await shop.passed(grace * 0.9)
        assert await shop.trial.letters(FAILED) == []
        await shop.rest()
        assert shop.trial.clock.now() - stopped < grace + MINUTE
    letters = await shop.trial.letters(FAILED)
    assert len(letters) == 20
    for letter in letters:
        assert letter.version == "1"
        assert f"{grace.total_seconds():.0f} s" in letter.last_error
    await assert_all_is_accounted_for(shop.trial)


async def test_a_version_that_comes_back_within_its_grace_gets_its_events_with_all_their_time() -> (
    None
):
    shop = Shop(retry=RetryConfig(max_attempts=3, ttl=MINUTE))
    async with shop.running("1"):
        async with shop.running("2"):
            pass
        await shop.publish(7)
        await shop.passed(9 * MINUTE)
        shop.fails = [ConnectionResetError("gone")]
        async with shop.running("2"):
            await shop.rest()
    assert shop.done == [("2", 7, 2)]
    (retry,) = shop.trial.facts.of(EventRetryScheduled)
    assert (retry.version, retry.age < MINUTE) == ("2", True)


async def test_an_event_that_failed_before_it_waited_for_a_version_keeps_its_time() -> None:
    shop = Shop(retry=RetryConfig(max_attempts=3, ttl=MINUTE))
    shop.fails = [DocumentNotFoundError("orders", ["7"]) for _ in range(2)]
    async with shop.running("1"):
        async with shop.running("2"):
            await shop.publish(7)
            await until(shop.trial, lambda: len(shop.fails) == 1)
        await shop.passed(9 * MINUTE)
        async with shop.running("2"):
            await shop.rest()
    assert shop.done == [("2", 7, 3)]


async def test_an_exception_of_the_handler_is_no_refusal() -> None:
    shop = Shop()
    shop.fails = [KeyError("price")]
    async with shop.running("1", shop.service("2", One)):
        await shop.publish("a")
        await shop.rest()
    letter = await only_letter(shop.trial)
    assert letter.error_type == "KeyError"
    assert letter.attempts[-1].version == letter.version
    assert letter.version in {"1", "2"}
    assert shop.trial.facts.of(EventHandedOn) == []


async def test_data_that_is_no_object_and_an_odd_envelope_are_refusals_and_garbage_is_none() -> (
    None
):
    shop = Shop()
    lists = Service("orders")  # without a version it is one, too
    lists.on("OrderPlaced", data=Row)(lambda event, work: shop.done.append(("", 0, 1)))
    async with shop.running(shop.service("1", None), lists):
        shop.put("list", b'{"event_type": "OrderPlaced", "data": [1]}')
        shop.put("version", b'{"event_type": "OrderPlaced", "version": 2, "data": {}}')
        shop.put("unknown", b'{"event_type": "Unknown", "data": {}}')
        shop.put("garbage", b"\xff{")
        await shop.rest()
    assert shop.done == [("", 0, 1)]
    letters = {letter.operation: letter for letter in await shop.trial.letters(FAILED)}
    assert {name: letter.abandoned_reason for name, letter in letters.items()} == {
        "version": "malformed",
        "unknown": "unroutable",
        "garbage": "malformed",
    }
    assert "version '1'" in letters["version"].last_error
    assert "refused" not in letters["garbage"].last_error


async def test_a_version_that_dies_over_an_event_is_found_out_while_the_other_hands_it_on() -> None:
    shop = Shop()
    started: list[int] = []
    deadly = Service("orders", version="2")

    @deadly.on("OrderPlaced", data=Two)
    async def run_until_killed(event: Event, work: Work) -> None:
        started.append(event.data.order)
        await asyncio.Event().wait()

    def over_or_more_than(before: int) -> bool:
        return len(started) > before or not shop.trial.state.items

    async with shop.running("1"):
        async with shop.running(deadly):
            pass
        await shop.publish(7)
        while shop.trial.state.items:
            before = len(started)
            async with shop.running(deadly) as (second,):
                await until(shop.trial, partial(over_or_more_than, before))
                crash(shop.trial, second)
    assert (await only_letter(shop.trial)).abandoned_reason == "crash_loop"
    assert 2 <= len(started) <= 4
    await assert_all_is_accounted_for(shop.trial)


async def test_more_versions_than_an_event_can_name_end_it_all_the_same() -> None:
    shop = Shop()
    async with shop.running(*(shop.service(f"v{number:02}", One) for number in range(20))):
        await shop.publish(7)
        await shop.rest()
    letter = await only_letter(shop.trial)
    assert letter.error_type == "RefusedEventError"
    assert sum(f"'v{number:02}'" in letter.last_error for number in range(20)) >= 16


async def test_an_event_whose_type_was_renamed_goes_to_the_version_that_takes_it() -> None:
    shop = Shop()
    renamed = Service("orders", version="2")

    @renamed.on("Order.Placed")  # the same queue
    async def place(event: Event, work: Work) -> None:
        shop.done.append(("2", event.data["order"], work.attempt))

    async with shop.running("1", renamed):
        for number in range(20):
            await shop.trial.publish("Order.Placed", {"order": str(number)})
            await shop.trial.publish("OrderPlaced", {"order": str(number)})
        await until(shop.trial, lambda: len(shop.done) == 40)
    assert sorted({version for version, *_ in shop.done}) == ["1", "2"]
    assert await shop.trial.letters(FAILED) == []
