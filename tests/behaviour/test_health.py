"""Outages: while a dependency is down, no attempt is counted and one event at a time is tried."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from headway import Event, RetryPolicy, Service, Work
from headway.facts import EventParked, EventRetryScheduled, FloodChanged, HealthChanged
from headway.retrying import Stepped
from headway.testing.engines import memory_engine
from headway.testing.trial import Trial
from tests.behaviour.scenes import (
    MINUTE,
    SECOND,
    assert_all_is_accounted_for,
    ran,
    reasons,
    until,
)


class Town:
    """A service that depends on something which is up or down as the test says."""

    def __init__(self, *, transient: RetryPolicy | None = None) -> None:
        self.error: Callable[[], BaseException] | None = lambda: ConnectionError("down")
        self.calls = 0
        self.done: dict[str, int] = {}
        self.most = 0
        self._running = 0
        self.takes = timedelta()
        self.last_to_succeed = 1_000_000
        self.orders = Service("orders")
        if transient is not None:
            self.orders.transient = transient
        self.orders.on("OrderPlaced")(self._handle)
        self.trial = Trial(self.orders)

    async def _handle(self, event: Event, work: Work) -> None:
        self.calls += 1
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            if self.takes:
                await self.trial.clock.wait(self.takes)
            if self.error is not None:
                raise self.error()
            if len(self.done) >= self.last_to_succeed:
                raise RuntimeError("its own trouble")
        finally:
            self._running -= 1
        self.done[event.event_id] = work.attempt

    async def publish(self, count: int, name: str = "e") -> None:
        for n in range(count):
            await self.trial.publish("OrderPlaced", event_id=f"{name}{n}")

    async def until_down(self) -> None:
        await until(self.trial, lambda: bool(self.trial.facts.of(HealthChanged)))

    async def until_done(self, count: int, at_most: timedelta = 5 * MINUTE) -> None:
        await until(self.trial, lambda: len(self.done) == count, at_most=at_most)


# What is an outage


async def test_a_dependency_down_for_ten_minutes_under_load_costs_nobody_an_attempt() -> None:
    town = Town()
    await town.publish(30)
    async with town.trial.running():
        for minute in range(10):
            await town.trial.clock.wait(MINUTE)
            await town.publish(10, name=f"m{minute}-")
        calls = town.calls
        town.error = None
        await town.until_done(130, at_most=2 * MINUTE)
    assert await reasons(town.trial) == []
    assert set(town.done.values()) == {1}
    assert calls < 60
    await assert_all_is_accounted_for(town.trial)


async def test_five_different_events_that_fail_by_one_rule_are_an_outage() -> None:
    town = Town()
    await town.publish(5)
    async with town.trial.running():
        await town.until_down()
        (fact,) = town.trial.facts.of(HealthChanged)
        assert (fact.down, fact.rule) == (True, "python.connection")
        assert fact.last_error == "ConnectionError"
        (queue,) = (await town.trial.balance()).queues
        assert (queue.parked, queue.delayed) == (1, 4)
        assert len(town.trial.facts.of(EventRetryScheduled)) == 4
        assert len(town.trial.facts.of(EventParked)) == 1
        town.error = None
        await town.until_done(5)


@pytest.mark.parametrize(
    ("error", "events"),
    [(ConnectionError, 4), (lambda: RuntimeError("no rule knows it"), 60)],
    ids=["four events", "unknown errors"],
)
async def test_fewer_events_and_unknown_errors_are_no_outage_and_no_flood(
    error: Callable[[], Exception], events: int
) -> None:
    town = Town()
    town.error = error
    await town.publish(events)
    await town.trial.run()
    assert await reasons(town.trial) == ["max_attempts_exceeded"] * events
    assert town.trial.facts.of(HealthChanged) == []
    assert town.trial.facts.of(FloodChanged) == []


async def test_failures_with_successes_between_them_are_no_outage() -> None:
    async def handle(event: Event, work: Work) -> None:
        if event.data["n"] == 0 or (event.data["n"] % 3 == 0 and work.attempt == 1):
            raise ConnectionError

    trial = await ran(handle, *({"n": n} for n in range(60)))
    assert trial.facts.of(HealthChanged) == []
    assert await reasons(trial) == ["max_attempts_exceeded"], "the one with trouble of its own"


async def test_an_outage_of_one_service_does_not_touch_another() -> None:
    town = Town()
    seen: list[str] = []
    billing = Service("billing")

    @billing.on("OrderPlaced")
    async def bill(event: Event, work: Work) -> None:
        seen.append(event.event_id)

    trial = town.trial = Trial(town.orders, billing)
    await town.publish(10)
    async with trial.running():
        await town.until_down()
        await town.publish(10, name="later")
        await until(trial, lambda: len(seen) == 20, at_most=5 * SECOND)
        town.error = None
        await town.until_done(20)


# During an outage


async def test_only_one_probe_is_tried_at_a_time() -> None:
    town = Town()
    await town.publish(30)
    async with town.trial.running():
        await town.until_down()
        await town.trial.clock.wait(timedelta(milliseconds=100))
        town.most, town.takes = 0, 3 * SECOND
        await town.trial.clock.wait(3 * MINUTE)
        assert town.most == 1
        town.error, town.takes = None, timedelta()
        await town.until_done(30)


async def test_everything_resumes_at_once_when_a_probe_succeeds() -> None:
    town = Town()
    await town.publish(50)
    async with town.trial.running():
        await town.until_down()
        await town.trial.clock.wait(MINUTE)
        town.error = None
        await until(town.trial, lambda: bool(town.done))
        await town.until_done(50, at_most=SECOND)
        back = town.trial.facts.of(HealthChanged)[-1]
        assert (back.down, back.rule) == (False, "python.connection")
        assert MINUTE < back.lasted < 2 * MINUTE
        # An event with trouble of its own still exhausts.
        calls, town.error = town.calls, lambda: ConnectionError("its own")
        await town.publish(1, name="poor")
        await until(town.trial, lambda: not town.trial.state.items, at_most=5 * MINUTE)
    assert town.calls == calls + 3
    assert await reasons(town.trial) == ["max_attempts_exceeded"]


async def test_time_spent_parked_does_not_count_against_the_time_to_live() -> None:
    short = RetryPolicy(max_attempts=3, backoff=Stepped(steps=(5 * SECOND,)), ttl=MINUTE)
    town = Town(transient=short)
    await town.publish(40)
    async with town.trial.running():
        await town.trial.clock.wait(5 * MINUTE)
        town.error = None
        town.last_to_succeed = 1
        await until(town.trial, lambda: not town.trial.state.items)
    assert await reasons(town.trial) == ["max_attempts_exceeded"] * 39
    ages = [fact.age for fact in town.trial.facts.of(EventRetryScheduled)]
    assert all(timedelta() <= age < MINUTE for age in ages)


async def test_a_probe_that_is_no_event_or_fails_for_good_does_not_end_the_probing() -> None:
    town = Town()
    await town.publish(5)
    async with town.trial.running():
        await town.until_down()
        await town.trial.clock.wait(2 * SECOND)
        for _ in range(3):
            await town.trial.publisher.publish_bytes(b"!", "OrderPlaced")
        await town.trial.clock.wait(MINUTE)
        calls, town.error = town.calls, lambda: ValueError("this one is bad")
        await until(town.trial, lambda: town.calls == calls + 1)
        town.error = None
        await town.until_done(4)
    assert sorted(await reasons(town.trial)) == ["malformed"] * 3 + ["non_retryable"]


async def test_a_closed_queue_with_nothing_to_probe_is_waited_for() -> None:
    town = Town()
    await town.publish(5)
    async with town.trial.running():
        await town.until_down()
        other = memory_engine(town.trial.clock, town.trial.chance, town.trial.state)
        await town.trial.clock.wait(timedelta(milliseconds=5900))
        held = await other.bus.take(["orders.order.placed"], 10)
        await town.trial.clock.wait(2 * MINUTE)
        town.error = None
        await other.bus.close()
        await town.until_done(5, at_most=MINUTE)
    assert held


# What is no flood


async def test_half_of_all_events_is_not_more_than_half() -> None:
    turns = iter(range(10_000))

    async def handle(event: Event, work: Work) -> None:
        if next(turns) % 2:
            raise ValueError

    trial = await ran(handle, *[None] * 200)
    assert trial.facts.of(FloodChanged) == []
    assert len(await reasons(trial)) == 100
