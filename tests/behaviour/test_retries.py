"""Failures on their schedules, to success or to a letter; and events that were there before."""

from datetime import timedelta
from typing import Any

import pytest

from headway import DocumentNotFoundError, Event, RetryConfig, Service, Work
from headway.core.travel import HISTORY_LIMIT
from headway.facts import (
    DeadLettered,
    DuplicatesRecognised,
    EventRecovered,
    EventRetryScheduled,
    Processed,
)
from headway.retrying import Reason
from headway.testing.chance import Fixed
from headway.testing.trial import Trial
from tests.behaviour.scenes import (
    assert_all_is_accounted_for,
    crash,
    failing,
    lost,
    reasons,
    redeliver,
    until,
)

ORDER = {"order": "a"}


def missing(times: int) -> list[BaseException]:
    return [DocumentNotFoundError("messages", [f"m{n}"]) for n in range(times)]


# Schedules


async def test_a_missing_document_is_tried_eight_times_more_on_doubling_waits() -> None:
    handler, trial = failing(*missing(9), chance=Fixed(0.5))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.attempts == list(range(1, 10))
    assert handler.waits == [0.125, 0.25, 0.5, 1, 2, 4, 8, 16]
    (letter,) = await trial.letters("orders.failed")
    assert (letter.abandoned_reason, letter.attempt_count) == ("max_attempts_exceeded", 8)


async def test_a_document_that_appears_in_time_ends_the_waiting() -> None:
    handler, trial = failing(*missing(3), chance=Fixed(0.999))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert len(handler.attempts) == 4
    (fact,) = trial.facts.of(EventRecovered)
    assert (fact.retries, round(fact.elapsed.total_seconds(), 2)) == (3, 1.75)


async def test_no_retry_begins_after_the_time_to_live() -> None:
    retry = RetryConfig(ttl=timedelta(seconds=3))
    handler, trial = failing(*missing(9), chance=Fixed(0.5), retry=retry)
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.waits == [0.125, 0.25, 0.5, 1]
    (letter,) = await trial.letters("orders.failed")
    assert (letter.abandoned_reason, letter.attempt_count) == ("ttl_exceeded", 4)


async def test_a_service_may_have_a_schedule_of_its_own() -> None:
    handled: list[int] = []
    orders = Service("orders", retry=RetryConfig(max_attempts=1))

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        handled.append(work.attempt)
        raise DocumentNotFoundError("messages", ["a"])

    trial = Trial(orders, retry=RetryConfig(max_attempts=5))
    await trial.publish("OrderPlaced")
    await trial.run()
    assert handled == [1, 2]


async def test_retry_with_exponential_backoff() -> None:
    handler, trial = failing(*lost(2))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.attempts == [1, 2, 3]
    assert handler.waits == [5, 10]
    assert await reasons(trial) == []


async def test_max_retries_exceeded_is_a_letter_and_a_failed_event() -> None:
    handler, trial = failing(*lost(9))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.waits == [5, 10]
    (letter,) = await trial.letters("orders.failed")
    assert (letter.abandoned_reason, letter.error_type) == (
        "max_attempts_exceeded",
        "ConnectionResetError",
    )


class Unknown(Exception):  # noqa: N818
    pass


async def test_an_error_that_no_rule_knows_is_tried_like_a_transient_one() -> None:
    handler, trial = failing(*[Unknown("what?")] * 3)
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.waits == [5, 10]
    assert await reasons(trial) == ["max_attempts_exceeded"]


@pytest.mark.parametrize("error", [ValueError("bad"), TypeError("bug"), KeyError("gone")])
async def test_a_permanent_error_is_a_letter_at_once(error: Exception) -> None:
    handler, trial = failing(*[error] * 3)
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.attempts == [1]
    (letter,) = await trial.letters("orders.failed")
    assert (letter.abandoned_reason, letter.attempt_count) == ("non_retryable", 0)


async def test_each_kind_of_failure_counts_on_its_own_schedule() -> None:
    mixed = [lost(1)[0], *missing(2), lost(1)[0], *missing(6)]
    handler, trial = failing(*mixed, chance=Fixed(0.5))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.waits == [5, 0.125, 0.25, 10, 0.5, 1, 2, 4, 8, 16]
    assert (await trial.count()).done == 1


async def test_the_third_transient_failure_ends_it_whatever_else_happened_in_between() -> None:
    mixed = [lost(1)[0], missing(1)[0], lost(1)[0], missing(1)[0], lost(1)[0]]
    handler, trial = failing(*mixed)
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert len(handler.attempts) == 5
    assert await reasons(trial) == ["max_attempts_exceeded"]


async def test_an_event_handler_that_raises_has_its_event_kept_for_later() -> None:
    handler, trial = failing(*lost(1))
    await trial.publish("OrderPlaced", ORDER)
    async with trial.running():
        await until(trial, lambda: len(handler.attempts) == 1)
    (queue,) = (await trial.count()).queues
    assert (queue.delayed, queue.ready, queue.leased) == (1, 0, 0)
    await assert_all_is_accounted_for(trial)


async def test_an_event_that_waits_holds_up_no_other() -> None:
    done: list[str] = []
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        if event.event_id == "poor":
            raise ConnectionError
        done.append(event.event_id)

    trial = Trial(orders)
    await trial.publish("OrderPlaced", event_id="poor")
    for n in range(50):
        await trial.publish("OrderPlaced", event_id=f"e{n}")
    async with trial.running():
        await until(trial, lambda: len(done) == 50, at_most=timedelta(seconds=1))


async def test_new_settings_hold_from_the_next_failure_on() -> None:
    handler, trial = failing(*missing(9), chance=Fixed(0.5))
    await trial.publish("OrderPlaced", ORDER)
    async with trial.running() as worker:
        await until(trial, lambda: len(handler.attempts) == 1)
        worker.reload(RetryConfig(max_attempts=2, base_delay=timedelta(seconds=8)))
        await until(trial, lambda: len(handler.attempts) == 3)
    assert handler.waits == [0.125, 8]
    assert await reasons(trial) == ["max_attempts_exceeded"]


# What outlives a worker


async def test_attempts_and_their_errors_outlive_the_workers() -> None:
    handler, trial = failing(*lost(2), ValueError("at last"))
    await trial.publish("OrderPlaced", ORDER)
    for n in (1, 2, 3):
        async with trial.running():
            await until(trial, lambda n=n: len(handler.attempts) == n)  # type: ignore[misc]
    (letter,) = await trial.letters("orders.failed")
    assert handler.attempts == [1, 2, 3]
    assert [(a.number, a.error_type, a.message) for a in letter.attempts] == [
        (1, "ConnectionResetError", "reset 0"),
        (2, "ConnectionResetError", "reset 1"),
        (3, "ValueError", "at last"),
    ]


async def test_a_crash_repeats_the_attempt_and_does_not_count() -> None:
    handler, trial = failing(*lost(3))
    await trial.publish("OrderPlaced", ORDER)
    async with trial.running() as worker:
        await until(trial, lambda: len(handler.attempts) == 1)
        await until(trial, lambda: any(i.due > trial.clock.now() for i in items(trial)))
        crash(trial, worker)
    await trial.run()
    assert handler.attempts == [1, 2, 3]
    assert await reasons(trial) == ["max_attempts_exceeded"]


def items(trial: Trial) -> list[Any]:
    return list(trial.state.items.values())


async def test_the_time_to_live_counts_from_the_first_attempt_of_any_worker() -> None:
    handler, trial = failing(*missing(9), retry=RetryConfig(ttl=timedelta(minutes=2)))
    await trial.publish("OrderPlaced", ORDER)
    async with trial.running():
        await until(trial, lambda: len(handler.attempts) == 2)
    trial.clock.advance(timedelta(minutes=3))
    await trial.run()
    assert len(handler.attempts) == 3
    assert await reasons(trial) == ["ttl_exceeded"]


# Letters


async def test_a_letter_holds_all_that_a_person_needs() -> None:
    _, trial = failing(*lost(3))
    await trial.publish("OrderPlaced", ORDER, event_id="e1")
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert letter.original_event["event_id"] == "e1"
    assert letter.original_event["data"] == ORDER
    assert letter.idempotency_key == "orders-a"
    assert letter.last_error == "ConnectionResetError: reset 2"
    assert letter.service_name == "orders"
    assert letter.timestamp == "2000-01-01T00:00:15Z"
    assert (letter.operation, letter.queue) == ("e1", "orders.order.placed")


async def test_a_letter_tells_of_every_attempt() -> None:
    _, trial = failing(*lost(3))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert [attempt.at for attempt in letter.attempts] == [
        "2000-01-01T00:00:00Z",
        "2000-01-01T00:00:05Z",
        "2000-01-01T00:00:15Z",
    ]
    for attempt in letter.attempts:
        assert (attempt.worker, attempt.rule) == ("worker", "python.connection")
        assert "Traceback" in attempt.traceback
        assert "scenes.py" in attempt.traceback


async def test_the_history_of_very_long_errors_stays_small() -> None:
    errors = [DocumentNotFoundError("m", ["x" * 50_000]) for _ in range(9)]
    _, trial = failing(*errors)
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert sum(len(a.message) + len(a.traceback) for a in letter.attempts) <= HISTORY_LIMIT
    assert letter.attempts[0].number == 1
    assert letter.attempts[-1].number == 9


async def test_passwords_in_errors_are_hidden_wherever_they_are_kept() -> None:
    told: list[Any] = []
    orders, desk = Service("orders"), Service("desk")

    @orders.on("OrderPlaced", failed="OrderFailed", dedup="order")
    async def handle(event: Event, work: Work) -> None:
        raise ValueError("cannot reach amqp://guest:s3cret@broker")

    @desk.on("OrderFailed")
    async def tell(event: Event, work: Work) -> None:
        told.append(event.data)

    trial = Trial(orders, desk)
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    (fact,) = trial.facts.of(DeadLettered)
    assert "amqp://guest:***@broker" in letter.last_error
    for kept in (letter, told, fact.last_error):
        assert "s3cret" not in repr(kept)


async def test_a_failed_event_is_published_once_with_what_it_was_about() -> None:
    told: list[Event] = []
    orders, desk = Service("orders"), Service("desk")

    @orders.on("OrderPlaced", failed="OrderFailed", documents=("orders", "order"))
    async def handle(event: Event, work: Work) -> None:
        raise ConnectionError("gone")

    @desk.on("OrderFailed")
    async def tell(event: Event, work: Work) -> None:
        told.append(event)

    trial = Trial(orders, desk)
    await trial.publish("OrderPlaced", {"order": "a", "secret": "x"})
    await trial.run()
    (event,) = told
    assert event.data == {
        "order": "a",
        "error_message": "gone",
        "error_type": "ConnectionError",
        "retry_count": event.data["retry_count"],
        "failed_at": "2000-01-01T00:00:15Z",
    }
    assert await trial.letters("desk.failed") == []


# Duplicates


@pytest.mark.parametrize(
    ("dedup", "data", "key"),
    [
        (None, {"order": "a"}, "orders-e1"),
        ("order", {"order": "a"}, "orders-a"),
        ("order", {"order": 7}, "orders-7"),
        ("order", {"order": ["a", "b", "c"]}, "orders-a-b-c"),
        (lambda event: f"mine-{event.data['order']}", {"order": "a"}, "mine-a"),
    ],
)
async def test_work_is_named_by_what_the_subscription_says(
    dedup: Any, data: dict[str, Any], key: str
) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", dedup=dedup)
    async def handle(event: Event, work: Work) -> None:
        raise ValueError(work.key)

    trial = Trial(orders)
    await trial.publish("OrderPlaced", data, event_id="e1")
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert letter.idempotency_key == key
    assert letter.last_error.startswith(f"ValueError: orders/OrderPlaced/0/{key}")


async def test_the_key_is_the_same_in_every_attempt() -> None:
    _, trial = failing(*missing(2))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    keys = {fact.idempotency_key for fact in trial.facts.of(EventRetryScheduled)}
    assert keys == {"orders-a"}


async def test_idempotent_processing() -> None:
    handler, trial = failing()
    await trial.publish("OrderPlaced", ORDER, event_id="e1")
    await trial.run()
    redeliver(trial, "e1", ORDER)
    await trial.run()
    assert handler.attempts == [1]
    assert [(f.count, f.why) for f in trial.facts.of(DuplicatesRecognised)] == [(1, "done")]
    assert (await trial.count()).done == 1


async def test_a_duplicate_that_is_taken_together_with_the_first_takes_no_effect() -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        work.documents("counts").increment("all", "n")
        work.documents("log").add({"text": "once"})

    trial = Trial(orders)
    await trial.publish("OrderPlaced", event_id="e1")
    trial.state.duplicate("e1")
    await trial.run()
    assert await trial.documents("counts") == [{"_id": "all", "n": 1}]
    assert len(await trial.documents("log")) == 1
    assert sum(fact.count for fact in trial.facts.of(DuplicatesRecognised)) == 1


async def test_another_event_about_the_same_work_is_recognised_and_accounted_for() -> None:
    handler, trial = failing()
    await trial.publish("OrderPlaced", ORDER, event_id="e1")
    await trial.run()
    await trial.publish("OrderPlaced", ORDER, event_id="e2")
    await trial.run()
    assert handler.attempts == [1]
    assert (await trial.count()).done == 2
    await assert_all_is_accounted_for(trial)


async def test_other_work_is_no_duplicate() -> None:
    handler, trial = failing()
    for order in "abc":
        await trial.publish("OrderPlaced", {"order": order})
    await trial.run()
    assert handler.attempts == [1, 1, 1]


async def test_a_redelivery_never_runs_a_dead_event() -> None:
    handler, trial = failing(ValueError("bad"))
    await trial.publish("OrderPlaced", ORDER, event_id="e1")
    await trial.run()
    redeliver(trial, "e1", ORDER)
    await trial.run()
    assert handler.attempts == [1]
    assert await reasons(trial) == ["non_retryable"]


async def test_a_redelivery_during_a_retry_does_not_make_two_of_one() -> None:
    handler, trial = failing(*lost(1))
    await trial.publish("OrderPlaced", ORDER, event_id="e1")
    async with trial.running():
        await until(trial, lambda: len(handler.attempts) == 1)
        redeliver(trial, "e1", ORDER)
        await until(trial, lambda: len(handler.attempts) == 2)
    await trial.run()
    assert len(handler.attempts) == 2
    await assert_all_is_accounted_for(trial)


# Facts


async def test_an_event_that_simply_succeeds_is_one_fact() -> None:
    _, trial = failing()
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    (fact,) = trial.facts.facts
    assert isinstance(fact, Processed)
    assert (fact.service, fact.event_type, len(fact.seconds)) == ("orders", "OrderPlaced", 1)


async def test_a_recovered_event_is_told_once_with_its_retries() -> None:
    _, trial = failing(*lost(2))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    scheduled = trial.facts.of(EventRetryScheduled)
    assert [(f.retry, f.max_retries, f.delay.total_seconds()) for f in scheduled] == [
        (1, 2, 5),
        (2, 2, 10),
    ]
    (recovered,) = trial.facts.of(EventRecovered)
    assert (recovered.retries, recovered.elapsed) == (2, timedelta(seconds=15))
    assert len(trial.facts.facts) == 4


async def test_a_letter_is_told_once_with_its_reason() -> None:
    _, trial = failing(*lost(3))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    (fact,) = trial.facts.of(DeadLettered)
    (letter,) = await trial.letters("orders.failed")
    assert (fact.reason, fact.attempts) == (Reason.MAX_ATTEMPTS_EXCEEDED, 3)
    assert (fact.letter_id, fact.failed_queue) == (letter.letter_id, "orders.failed")
    assert fact.elapsed == timedelta(seconds=15)
    assert fact.failure is not None
    assert trial.facts.of(Processed) == []


async def test_a_corrected_event_runs_although_one_with_its_key_failed_before() -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", dedup="order")
    async def handle(event: Event, work: Work) -> None:
        if event.data.get("bad"):
            raise ValueError("bad")
        work.documents("orders").add({"order": event.data["order"]})

    trial = Trial(orders)
    await trial.publish("OrderPlaced", {"order": "a", "bad": True})
    await trial.run()
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.run()
    assert len(await trial.documents("orders")) == 1, "the corrected one, once"
    assert len(await trial.letters("orders.failed")) == 1
    assert await trial.engine.places.astray(9) == (0, [])


async def test_events_with_one_key_that_fail_together_each_have_a_letter() -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", dedup="order", failed="OrderFailed")
    async def handle(event: Event, work: Work) -> None:
        if event.data.get("bad"):
            raise ValueError("bad")
        work.documents("orders").add({"order": event.data["order"]})

    listening = Service("listening")

    @listening.on("OrderFailed")
    async def note(event: Event, work: Work) -> None:
        work.documents("failures").add({})

    trial = Trial(orders, listening)
    for bad in (True, True, False, True, False):
        await trial.publish("OrderPlaced", {"order": "a", "bad": bad})
    await trial.run()
    done = await trial.documents("orders")
    letters = await trial.letters("orders.failed")
    assert len(done) == 1
    assert len(letters) == len(await trial.documents("failures"))
    assert 2 <= len(letters) <= 3, "the last bad one may come after the good one, which did it"
    assert await trial.engine.places.astray(9) == (0, [])
