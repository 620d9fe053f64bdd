"""Two versions of one service at once: an event goes to the version that can read it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from headway import ConfigurationError, DocumentNotFoundError, Event, RetryConfig, Service, Work
from headway.facts import DeadLettered, EventHandedOn, EventRetryScheduled
from headway.logs import LogObserver
from headway.operations import FailedQueues, Letter
from headway.testing.engines import Worker, memory_engine
from headway.testing.ports import Refusal, Travel
from headway.testing.trial import Trial
from tests.behaviour.scenes import MINUTE, SECOND, assert_all_is_accounted_for, crash, until

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

    async def rest(self, at_most: timedelta = timedelta(hours=1)) -> None:
        await until(self.trial, lambda: not self.trial.state.items, at_most)

    async def until_done(self, number: int) -> None:
        await until(self.trial, lambda: len(self.done) >= number)

    async def letters(self) -> list[Letter]:
        return list(await self.trial.letters(FAILED))

    async def letter(self) -> Letter:
        (letter,) = await self.letters()
        return letter


async def test_a_thousand_events_that_only_the_new_version_reads_are_all_done_by_it() -> None:
    shop = Shop()
    orders = list(range(1000))
    async with shop.running("1", "2"):
        await shop.publish(*orders)
        await shop.rest()
    assert await shop.letters() == []
    assert sorted(shop.done) == [("2", order, 1) for order in orders]
    handed_on = shop.trial.facts.of(EventHandedOn)
    assert {(fact.version, fact.awaited) for fact in handed_on} == {("1", ("2",))}
    assert shop.trial.facts.of(EventRetryScheduled) == []
    await assert_all_is_accounted_for(shop.trial)


async def test_events_of_each_version_wait_for_none_of_the_other() -> None:
    shop = Shop()
    async with shop.running("1"):
        async with shop.running("2"):
            pass  # it was here: all that only version 2 reads waits for it
        await shop.publish(*range(100))
        await until(shop.trial, lambda: len(shop.trial.facts.of(EventHandedOn)) >= 100)
        for number in range(20):
            before = shop.trial.clock.now()
            await shop.publish(f"old-{number}")
            await shop.until_done(number + 1)
            assert shop.trial.clock.now() - before < SECOND
    assert {version for version, *_ in shop.done} == {"1"}


async def test_a_single_version_ends_what_it_cannot_read_at_once() -> None:
    shop = Shop()
    async with shop.running("1", "1"):
        before = shop.trial.clock.now()
        await shop.publish(7)
        await shop.rest()
        assert shop.trial.clock.now() - before < SECOND
    letter = await shop.letter()
    assert (letter.abandoned_reason, letter.error_type) == ("non_retryable", "ValidationError")
    assert (letter.version, letter.attempts[-1].version) == ("1", "1")
    assert "version" not in letter.last_error


async def test_without_a_version_a_service_is_one_version() -> None:
    shop = Shop()
    unnamed = shop.service("", One)
    async with shop.running(unnamed, "2"):
        await shop.publish(7)
        await shop.rest()
    assert (await shop.letters(), shop.done) == ([], [("2", 7, 1)])


async def test_what_every_live_version_refused_is_one_letter_that_names_them() -> None:
    shop = Shop()
    async with shop.running("1", "2", "1", "2"):
        before = shop.trial.clock.now()
        await shop.publish(None)
        await shop.rest()
        assert shop.trial.clock.now() - before < MINUTE
    letter = await shop.letter()
    assert (letter.abandoned_reason, letter.error_type) == ("non_retryable", "RefusedEventError")
    assert "version '1' refused it" in letter.last_error
    assert "version '2' refused it" in letter.last_error
    assert [each.error_type for each in letter.attempts] == ["ValidationError"]
    assert len(shop.trial.facts.of(DeadLettered)) == 1
    await assert_all_is_accounted_for(shop.trial)


@pytest.mark.parametrize("dies", [False, True])
async def test_a_version_that_stopped_is_awaited_for_its_grace_and_no_longer(*, dies: bool) -> None:
    shop = Shop()
    async with shop.running("1"):
        async with shop.running("2") as (second,):
            if dies:
                crash(shop.trial, second)
        stopped = shop.trial.clock.now()
        await shop.publish(*range(20))
        await until(shop.trial, lambda: shop.trial.clock.now() - stopped > GRACE * 0.9, 2 * GRACE)
        assert await shop.letters() == []
        await shop.rest()
        assert shop.trial.clock.now() - stopped < GRACE + MINUTE
    letters = await shop.letters()
    assert len(letters) == 20
    for letter in letters:
        assert letter.version == "1"
        assert "version '1' refused it" in letter.last_error
        assert "version '2' was not alive within 600 s" in letter.last_error
    await assert_all_is_accounted_for(shop.trial)


async def test_the_grace_is_a_setting_of_the_service() -> None:
    shop = Shop(version_grace=MINUTE)
    async with shop.running("1"):
        async with shop.running("2"):
            pass
        await shop.publish(7)
        before = shop.trial.clock.now()
        await shop.rest()
        assert shop.trial.clock.now() - before < 1.5 * MINUTE
    assert "version '2' was not alive within 60 s" in (await shop.letter()).last_error


async def test_a_version_that_comes_back_within_its_grace_gets_its_events_with_all_their_time() -> (
    None
):
    shop = Shop(retry=RetryConfig(max_attempts=3, ttl=MINUTE))
    async with shop.running("1"):
        async with shop.running("2"):
            pass
        await shop.publish(7)
        start = shop.trial.clock.now()
        await until(shop.trial, lambda: shop.trial.clock.now() - start > 9 * MINUTE, 2 * GRACE)
        shop.fails = [ConnectionResetError("gone")]
        async with shop.running("2"):
            await shop.rest()
    assert (await shop.letters(), shop.done) == ([], [("2", 7, 2)])
    (retry,) = shop.trial.facts.of(EventRetryScheduled)
    assert (retry.version, retry.age < MINUTE) == ("2", True)


async def test_an_event_that_failed_before_it_waited_for_a_version_keeps_its_time() -> None:
    shop = Shop(retry=RetryConfig(max_attempts=3, ttl=MINUTE))
    shop.fails = [DocumentNotFoundError("orders", ["7"]) for _ in range(2)]
    async with shop.running("1"):
        async with shop.running("2"):
            await shop.publish(7)
            await until(shop.trial, lambda: len(shop.fails) == 1)
        start = shop.trial.clock.now()
        await until(shop.trial, lambda: shop.trial.clock.now() - start > 9 * MINUTE, 2 * GRACE)
        async with shop.running("2"):
            await shop.rest()
    assert (await shop.letters(), shop.done) == ([], [("2", 7, 3)])


async def test_a_version_that_does_not_take_from_the_queue_is_not_awaited() -> None:
    shop = Shop()
    other = Service("orders", version="2")
    other.on("OrderPaid")(lambda event, work: None)
    async with shop.running("1", other):
        await shop.publish(7)
        before = shop.trial.clock.now()
        await shop.rest()
        assert shop.trial.clock.now() - before < SECOND
    assert (await shop.letter()).error_type == "ValidationError"


async def test_an_exception_of_the_handler_is_no_refusal() -> None:
    shop = Shop()
    shop.fails = [KeyError("price")]
    async with shop.running("1", shop.service("2", One)):
        await shop.publish("a")
        await shop.rest()
    letter = await shop.letter()
    assert letter.error_type == "KeyError"
    assert letter.version in {"1", "2"}
    assert letter.attempts[-1].version == letter.version
    assert shop.trial.facts.of(EventHandedOn) == []


async def test_data_without_the_field_that_names_the_work_is_left_to_the_other_version() -> None:
    done: list[str] = []

    def service(version: str, field: str) -> Service:
        made = Service("orders", version=version)
        made.on("OrderPlaced", dedup=field)(lambda event, work: done.append(version))
        return made

    shop = Shop()
    async with shop.running(service("1", "order_ids"), service("2", "order")):
        await shop.publish(*range(20))
        await shop.rest()
    assert (await shop.letters(), done) == ([], ["2"] * 20)


async def test_data_that_is_no_object_and_an_odd_envelope_are_refusals_and_garbage_is_none() -> (
    None
):
    shop = Shop()
    lists = Service("orders", version="2")
    lists.on("OrderPlaced", data=Row)(lambda event, work: shop.done.append(("2", 0, 1)))
    plain = shop.service("1", None)
    bodies = {
        "list": b'{"event_type": "OrderPlaced", "data": [1]}',
        "version": b'{"event_type": "OrderPlaced", "version": 2, "data": {}}',
        "unknown": b'{"event_type": "Unknown", "data": {}}',
        "garbage": b"\xff{",
    }
    async with shop.running(plain, lists):
        for name, body in bodies.items():
            travel = Travel(operation=name)
            shop.trial.state.put(QUEUE, body, travel, shop.trial.clock.now())
        await shop.rest()
    assert shop.done == [("2", 0, 1)]
    letters = {letter.operation: letter for letter in await shop.letters()}
    assert {name: letter.abandoned_reason for name, letter in letters.items()} == {
        "version": "malformed",
        "unknown": "unroutable",
        "garbage": "malformed",
    }
    assert "version '1' refused it" in letters["version"].last_error
    assert "version '2' refused it" in letters["version"].last_error
    assert "refused" not in letters["garbage"].last_error
    assert {letter.version for letter in letters.values()} <= {"1", "2"}


async def test_a_version_that_dies_over_an_event_is_found_out_while_the_other_hands_it_on() -> None:
    shop = Shop()
    started: list[int] = []
    deadly = Service("orders", version="2")

    @deadly.on("OrderPlaced", data=Two)
    async def run_until_killed(event: Event, work: Work) -> None:
        started.append(event.data.order)
        await asyncio.Event().wait()

    def _over_or_more_than(before: int) -> bool:
        return len(started) > before or not shop.trial.state.items

    async with shop.running("1"):
        async with shop.running(deadly):
            pass
        await shop.publish(7)
        while shop.trial.state.items:
            before = len(started)
            async with shop.running(deadly) as (second,):
                await until(shop.trial, partial(_over_or_more_than, before))
                crash(shop.trial, second)
    assert (await shop.letter()).abandoned_reason == "crash_loop"
    assert 2 <= len(started) <= 4
    await assert_all_is_accounted_for(shop.trial)


async def test_a_requeued_letter_starts_without_refusals() -> None:
    shop = Shop()
    async with shop.running("1", "2"):
        await shop.publish(None)
        await shop.rest()
    failed = FailedQueues(shop.trial.engine, shop.trial.clock, shop.trial.chance)
    assert (await failed.requeue(FAILED)).done == 1
    async with shop.running("1", "2", shop.service("3", None)):
        await shop.rest()
    assert (await shop.letters(), shop.done) == ([], [("3", None, 1)])


async def test_more_versions_than_an_event_can_name_end_it_all_the_same() -> None:
    shop = Shop()
    many = [shop.service(f"v{number:02}", One) for number in range(20)]
    async with shop.running(*many):
        await shop.publish(7)
        await shop.rest()
    letter = await shop.letter()
    assert letter.error_type == "RefusedEventError"
    named = [number for number in range(20) if f"'v{number:02}'" in letter.last_error]
    assert len(named) >= 16


async def test_old_refusals_and_refusals_by_versions_that_are_gone_change_nothing() -> None:
    shop = Shop()
    refusals = tuple(
        Refusal(version=version, since="2001-01-01T00:00:00Z", error="ValueError: x")
        for version in ("0", "9")
    )
    async with shop.running("1", "2"):
        shop.trial.state.put(
            QUEUE,
            b'{"event_type": "OrderPlaced", "data": {"order": 7}}',
            Travel(operation="a", refusals=refusals),
            shop.trial.clock.now(),
        )
        await shop.rest()
    assert (await shop.letters(), shop.done) == ([], [("2", 7, 1)])


async def test_the_log_says_once_a_minute_that_events_are_left_to_another_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fact = EventHandedOn(
        service="orders",
        event_type="OrderPlaced",
        version="1",
        awaited=("2",),
        error="ValidationError: x",
    )
    observer = LogObserver(logging.getLogger("headway"))
    with caplog.at_level(logging.DEBUG, logger="headway"):
        for _ in range(1000):
            observer.tell(fact)
    (line,) = caplog.records
    assert line.levelno == logging.INFO
    assert line.getMessage() == (
        "Version '1' of orders cannot read 1 OrderPlaced, and leaves each to version '2': "
        "ValidationError: x"
    )


@pytest.mark.parametrize("version", [2, None, "x" * 65, "a\nb", b"1"])
def test_a_version_that_is_no_short_text_is_refused(version: Any) -> None:
    with pytest.raises(ConfigurationError, match="Invalid version="):
        Service("orders", version=version)


@pytest.mark.parametrize("grace", [timedelta(), 600, timedelta(days=8)])
def test_a_grace_that_makes_no_sense_is_refused(grace: Any) -> None:
    with pytest.raises(ConfigurationError, match="Invalid version_grace="):
        Service("orders", version_grace=grace)


async def test_an_event_whose_type_was_renamed_goes_to_the_version_that_takes_it() -> None:
    shop = Shop()
    renamed = Service("orders", version="2")

    @renamed.on("Order.Placed")  # the same queue
    async def place(event: Event, work: Work) -> None:
        shop.done.append(("2", event.data["order"], work.attempt))

    async with shop.running("1", renamed):
        for number in range(50):
            await shop.trial.publish("Order.Placed", {"order": str(number)})
            await shop.trial.publish("OrderPlaced", {"order": str(number)})
        await until(shop.trial, lambda: len(shop.done) == 100)
    assert sorted({version for version, *_ in shop.done}) == ["1", "2"]
    assert await shop.trial.letters(FAILED) == []
