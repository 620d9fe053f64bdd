"""Outages, in which nothing is counted; and floods, in which an event type pauses."""

from collections.abc import Callable
from datetime import timedelta

from headway import Event, RetryConfig, RetryPolicy, Service, Work
from headway.facts import EventParked, EventRetryScheduled, FloodChanged, HealthChanged, Processed
from headway.retrying import Stepped
from headway.settings import WorkerSettings
from headway.testing.engines import memory_engine
from headway.testing.trial import Trial
from tests.behaviour.scenes import MINUTE, SECOND, assert_all_is_accounted_for, reasons, until


class Town:
    """A service that depends on something which is up or down as the test says."""

    def __init__(
        self, *, prefetch: int | None = None, transient: RetryPolicy | None = None
    ) -> None:
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
        self.trial = Trial(self.orders, settings=WorkerSettings(prefetch=prefetch))

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

    async def until_paused(self) -> None:
        await until(self.trial, lambda: bool(self.trial.facts.of(FloodChanged)))


# Outages


async def test_a_dependency_down_for_ten_minutes_under_load_costs_nobody_an_attempt() -> None:
    town = Town()
    await town.publish(30)
    async with town.trial.running():
        for minute in range(10):
            await town.trial.clock.wait(MINUTE)
            await town.publish(10, name=f"m{minute}-")
        calls = town.calls
        town.error = None
        await until(town.trial, lambda: len(town.done) == 130, at_most=2 * MINUTE)
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
        assert (fact.down, fact.rule, fact.last_error) == (
            True,
            "python.connection",
            "ConnectionError",
        )
        (queue,) = (await town.trial.count()).queues
        assert (queue.parked, queue.delayed) == (1, 4)
        town.error = None
        await until(town.trial, lambda: len(town.done) == 5)


async def test_what_falls_into_an_outage_is_parked_and_told_so() -> None:
    town = Town()
    await town.publish(20)
    async with town.trial.running():
        await town.until_down()
        await town.trial.clock.wait(timedelta(milliseconds=500))
        assert town.calls == 5
        assert len(town.trial.facts.of(EventRetryScheduled)) == 4
        parked = {fact.idempotency_key for fact in town.trial.facts.of(EventParked)}
        assert len(parked) == 16
        town.error = None
        await until(town.trial, lambda: len(town.done) == 20)


async def test_four_events_are_no_outage() -> None:
    town = Town()
    await town.publish(4)
    await town.trial.run()
    assert await reasons(town.trial) == ["max_attempts_exceeded"] * 4
    assert town.trial.facts.of(HealthChanged) == []


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
        await until(town.trial, lambda: len(town.done) == 30)


async def test_everything_resumes_at_once_when_a_probe_succeeds() -> None:
    town = Town()
    await town.publish(50)
    async with town.trial.running():
        await town.until_down()
        await town.trial.clock.wait(MINUTE)
        town.error = None
        await until(town.trial, lambda: bool(town.done))
        await until(town.trial, lambda: len(town.done) == 50, at_most=SECOND)
    back = town.trial.facts.of(HealthChanged)[-1]
    assert (back.down, back.rule) == (False, "python.connection")
    assert MINUTE < back.lasted < 2 * MINUTE


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


async def test_one_event_with_its_own_lasting_trouble_exhausts_while_others_succeed() -> None:
    orders = Service("orders")
    done: list[str] = []

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        if event.event_id == "poor":
            raise ConnectionError
        done.append(event.event_id)

    trial = Trial(orders)
    await trial.publish("OrderPlaced", event_id="poor")
    for n in range(20):
        await trial.publish("OrderPlaced", event_id=f"e{n}")
    await trial.run()
    assert len(done) == 20
    assert await reasons(trial) == ["max_attempts_exceeded"]
    assert trial.facts.of(HealthChanged) == []


async def test_failures_with_successes_between_them_are_no_outage() -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        if event.data["n"] % 3 == 0 and work.attempt == 1:
            raise ConnectionError

    trial = Trial(orders)
    for n in range(60):
        await trial.publish("OrderPlaced", {"n": n})
    await trial.run(at_most=10 * MINUTE)
    assert trial.facts.of(HealthChanged) == []
    assert (await trial.count()).done == 60


async def test_after_an_outage_an_event_with_its_own_trouble_still_exhausts() -> None:
    town = Town()
    await town.publish(10)
    async with town.trial.running():
        await town.until_down()
        town.error = None
        await until(town.trial, lambda: len(town.done) == 10)
        calls, town.error = town.calls, lambda: ConnectionError("its own")
        await town.publish(1, name="poor")
        await until(town.trial, lambda: not town.trial.state.items, at_most=5 * MINUTE)
    assert town.calls == calls + 3
    assert await reasons(town.trial) == ["max_attempts_exceeded"]


async def test_one_event_alone_is_never_an_outage_however_often_it_fails() -> None:
    town = Town(transient=RetryPolicy(max_attempts=20, backoff=Stepped(steps=(SECOND,))))
    await town.publish(1)
    await town.trial.run()
    assert town.calls == 20
    assert town.trial.facts.of(HealthChanged) == []


async def test_errors_that_no_rule_knows_are_never_an_outage() -> None:
    town = Town()
    town.error = lambda: RuntimeError("what?")
    await town.publish(10)
    await town.trial.run()
    assert await reasons(town.trial) == ["max_attempts_exceeded"] * 10
    assert town.trial.facts.of(HealthChanged) == []


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
        await until(trial, lambda: len(town.done) == 20)


async def test_a_probe_that_is_no_event_does_not_end_the_probing() -> None:
    town = Town()
    await town.publish(5)
    async with town.trial.running():
        await town.until_down()
        await town.trial.clock.wait(2 * SECOND)
        for _ in range(3):
            await town.trial.publisher.publish_bytes(b"!", "OrderPlaced")
        await town.trial.clock.wait(MINUTE)
        town.error = None
        await until(town.trial, lambda: len(town.done) == 5, at_most=5 * MINUTE)
    assert await reasons(town.trial) == ["malformed"] * 3


async def test_a_probe_that_fails_for_good_does_not_end_the_probing_nor_the_worker() -> None:
    town = Town()
    await town.publish(5)
    async with town.trial.running():
        await town.until_down()
        town.error = lambda: ValueError("this one is bad")
        await until(town.trial, lambda: town.calls == 6)
        town.error = None
        await until(town.trial, lambda: len(town.done) == 4, at_most=MINUTE)
    assert await reasons(town.trial) == ["non_retryable"]


async def test_a_closed_queue_with_nothing_to_probe_is_waited_for() -> None:
    town = Town()
    await town.publish(5)
    async with town.trial.running():
        await town.until_down()
        other = memory_engine(town.trial.clock, town.trial.chance, town.trial.state)
        await town.trial.clock.wait(timedelta(milliseconds=900))
        await town.trial.clock.wait(5 * SECOND)
        held = await other.bus.take(["orders.order.placed"], 10)
        await town.trial.clock.wait(2 * MINUTE)
        town.error = None
        await other.bus.close()
        await until(town.trial, lambda: len(town.done) == 5, at_most=MINUTE)
    assert held


# Floods


def flooded() -> Town:
    town = Town(prefetch=20)
    town.error = lambda: ValueError("a bad deploy")
    return town


async def test_a_type_of_which_every_event_fails_for_good_pauses() -> None:
    town = flooded()
    await town.publish(200)
    async with town.trial.running():
        await town.until_paused()
        await town.trial.clock.wait(30 * SECOND)
        (fact,) = town.trial.facts.of(FloodChanged)
        assert (fact.paused, fact.permanent, fact.handled) == (True, 20, 20)
        assert len(await reasons(town.trial)) < 50


async def test_one_event_a_minute_is_tried_in_a_long_pause() -> None:
    town = flooded()
    await town.publish(200)
    async with town.trial.running():
        await town.until_paused()
        await town.trial.clock.wait(MINUTE)
        before = len(await reasons(town.trial))
        await town.trial.clock.wait(10 * MINUTE)
        assert len(await reasons(town.trial)) == before + 10


async def test_one_event_a_minute_is_tried_of_each_type_that_is_paused() -> None:
    town = flooded()
    town.orders.on("OrderCancelled")(town._handle)
    await town.publish(200)
    for _ in range(200):
        await town.trial.publish("OrderCancelled")
    async with town.trial.running():
        await until(town.trial, lambda: len(town.trial.facts.of(FloodChanged)) == 2)
        await town.trial.clock.wait(MINUTE)
        before = len(await reasons(town.trial))
        await town.trial.clock.wait(5 * MINUTE)
        assert len(await reasons(town.trial)) == before + 2 * 5


async def test_a_probe_that_succeeds_ends_the_pause() -> None:
    town = flooded()
    await town.publish(200)
    async with town.trial.running():
        await town.until_paused()
        town.error = None
        await until(town.trial, lambda: not town.trial.state.items, at_most=3 * MINUTE)
    assert [fact.paused for fact in town.trial.facts.of(FloodChanged)] == [True, False]
    assert len(town.done) + len(await reasons(town.trial)) == 200


async def test_a_type_can_pause_a_second_time() -> None:
    town = flooded()
    await town.publish(100)
    async with town.trial.running():
        await town.until_paused()
        town.error = None
        await until(town.trial, lambda: not town.trial.state.items, at_most=3 * MINUTE)
        await town.trial.clock.wait(2 * MINUTE)
        town.error = lambda: ValueError("bad again")
        await town.publish(100, name="second")
        await until(town.trial, lambda: len(town.trial.facts.of(FloodChanged)) == 3)
        town.error = None
        await until(town.trial, lambda: not town.trial.state.items, at_most=3 * MINUTE)
    assert [f.paused for f in town.trial.facts.of(FloodChanged)] == [True, False, True, False]


async def test_a_person_can_end_the_pause_by_reloading() -> None:
    town = flooded()
    await town.publish(100)
    async with town.trial.running() as worker:
        await town.until_paused()
        town.error = None
        worker.reload(RetryConfig())
        await until(town.trial, lambda: not town.trial.state.items, at_most=5 * SECOND)
    assert [fact.paused for fact in town.trial.facts.of(FloodChanged)] == [True, False]


async def test_half_of_all_events_is_not_more_than_half() -> None:
    turns = iter(range(10_000))

    async def handle(event: Event, work: Work) -> None:
        if next(turns) % 2:
            raise ValueError

    orders = Service("orders")
    orders.on("OrderPlaced")(handle)
    trial = Trial(orders)
    for _ in range(200):
        await trial.publish("OrderPlaced")
    await trial.run()
    assert trial.facts.of(FloodChanged) == []
    assert len(await reasons(trial)) == 100


async def test_malformed_and_unroutable_input_is_no_flood() -> None:
    town = Town()
    town.error = None
    await town.trial.open()
    for n in range(100):
        body = b"!" if n % 2 else b'{"event_type": "Other"}'
        await town.trial.publisher.publish_bytes(body, "OrderPlaced")
    await town.publish(10)
    await town.trial.run()
    assert town.trial.facts.of(FloodChanged) == []
    assert len(await reasons(town.trial)) == 100
    assert len(town.done) == 10


async def test_exhausted_retries_are_no_flood() -> None:
    town = Town()
    town.error = lambda: RuntimeError("what?")
    await town.publish(60)
    await town.trial.run()
    assert town.trial.facts.of(FloodChanged) == []


async def test_a_busy_service_that_turns_bad_does_not_pour_out_all_that_it_has_taken() -> None:
    town = Town()
    town.error = None
    await town.publish(3000)
    async with town.trial.running():
        await until(town.trial, lambda: len(town.done) == 3000)
        await town.trial.clock.wait(2 * MINUTE)
        town.error = lambda: ValueError("a bad producer")
        await town.publish(1000, name="bad")
        await town.until_paused()
        await town.trial.clock.wait(30 * SECOND)
        assert len(await reasons(town.trial)) < 100
    assert sum(len(fact.seconds) for fact in town.trial.facts.of(Processed)) == 3000
