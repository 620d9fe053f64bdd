"""Failures on their schedules, to success or to a letter; and events that were there before."""

from datetime import timedelta
from typing import Any

import pytest

from headway import DocumentNotFoundError, Event, RetryConfig, Service, Work
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
    failing,
    lost,
    only_letter,
    ran,
    reasons,
    redeliver,
    until,
)

ORDER = {"order": "a"}
LONGEST_HISTORY = 16_384


def missing(times: int) -> list[BaseException]:
    return [DocumentNotFoundError("messages", [f"m{n}"]) for n in range(times)]


# Schedules


async def test_a_missing_document_is_tried_eight_times_more_on_doubling_waits() -> None:
    handler, trial = failing(*missing(9), chance=Fixed(0.5))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.attempts == list(range(1, 10))
    assert handler.waits == [0.125, 0.25, 0.5, 1, 2, 4, 8, 16]
    letter = await only_letter(trial)
    assert (letter.abandoned_reason, letter.attempt_count) == ("max_attempts_exceeded", 8)
    keys = {fact.idempotency_key for fact in trial.facts.of(EventRetryScheduled)}
    assert keys == {letter.idempotency_key} == {"orders-a"}


async def test_no_retry_begins_after_the_time_to_live() -> None:
    retry = RetryConfig(ttl=timedelta(seconds=3))
    handler, trial = failing(*missing(9), chance=Fixed(0.5), retry=retry)
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.waits == [0.125, 0.25, 0.5, 1]
    letter = await only_letter(trial)
    assert (letter.abandoned_reason, letter.attempt_count) == ("ttl_exceeded", 4)


@pytest.mark.parametrize(
    ("errors", "waits", "reason"),
    [
        (lost(2), [5, 10], None),
        (lost(9), [5, 10], "max_attempts_exceeded"),
        ([Exception("no rule knows it")] * 3, [5, 10], "max_attempts_exceeded"),
        ([ValueError("bad")], [], "non_retryable"),
        ([TypeError("bug")], [], "non_retryable"),
        ([KeyError("gone")], [], "non_retryable"),
        # Each kind of failure counts on its own schedule.
        (
            [*lost(1), *missing(2), *lost(1), *missing(6)],
            [5, 0.125, 0.25, 10, 0.5, 1, 2, 4, 8, 16],
            None,
        ),
        (
            [*lost(1), *missing(1), *lost(1), *missing(1), *lost(1)],
            [5, 0.125, 10, 0.25],
            "max_attempts_exceeded",
        ),
    ],
)
async def test_each_kind_of_failure_has_its_schedule(
    errors: list[BaseException], waits: list[float], reason: str | None
) -> None:
    handler, trial = failing(*errors, chance=Fixed(0.5))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    assert handler.waits == waits
    assert await reasons(trial) == ([] if reason is None else [reason])
    told = [fact.delay.total_seconds() for fact in trial.facts.of(EventRetryScheduled)]
    assert told == waits
    if reason is None:
        (recovered,) = trial.facts.of(EventRecovered)
        assert (recovered.retries, recovered.elapsed.total_seconds()) == (len(waits), sum(waits))
        (fact,) = trial.facts.of(Processed)
        assert (fact.service, fact.event_type, len(fact.seconds)) == ("orders", "OrderPlaced", 1)


async def test_an_event_that_waits_is_kept_and_holds_up_no_other() -> None:
    handler, trial = failing(*lost(1))
    await trial.publish("OrderPlaced", ORDER)
    async with trial.running():
        await until(trial, lambda: len(handler.attempts) == 1)
        for n in range(50):
            await trial.publish("OrderPlaced", {"order": f"o{n}"})
        await until(trial, lambda: len(handler.attempts) == 51, at_most=timedelta(seconds=1))
    (queue,) = (await trial.balance()).queues
    assert (queue.delayed, queue.ready, queue.leased) == (1, 0, 0)
    await assert_all_is_accounted_for(trial)


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
    assert handler.attempts == [1, 2, 3]
    letter = await only_letter(trial)
    assert [(a.number, a.error_type, a.message) for a in letter.attempts] == [
        (1, "ConnectionResetError", "reset 0"),
        (2, "ConnectionResetError", "reset 1"),
        (3, "ValueError", "at last"),
    ]


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


async def test_a_letter_holds_all_that_a_person_needs_and_is_told_once() -> None:
    _, trial = failing(*lost(3))
    await trial.publish("OrderPlaced", ORDER, event_id="e1")
    await trial.run()
    letter = await only_letter(trial)
    assert letter.original_event["event_id"] == "e1"
    assert letter.original_event["data"] == ORDER
    assert letter.last_error == "ConnectionResetError: reset 2"
    assert letter.service_name == "orders"
    assert letter.timestamp == "2000-01-01T00:00:15Z"
    assert (letter.operation, letter.queue) == ("e1", "orders.order.placed")
    times = ["2000-01-01T00:00:00Z", "2000-01-01T00:00:05Z", "2000-01-01T00:00:15Z"]
    assert [attempt.at for attempt in letter.attempts] == times
    for attempt in letter.attempts:
        assert (attempt.worker, attempt.rule) == ("worker", "python.connection")
        assert "scenes.py" in attempt.traceback
    (fact,) = trial.facts.of(DeadLettered)
    assert (fact.reason, fact.attempts) == (Reason.MAX_ATTEMPTS_EXCEEDED, 3)
    assert (fact.letter_id, fact.failed_queue) == (letter.letter_id, "orders.failed")
    assert fact.elapsed == timedelta(seconds=15)
    assert trial.facts.of(Processed) == []


async def test_the_history_of_very_long_errors_stays_small() -> None:
    _, trial = failing(*(DocumentNotFoundError("m", ["x" * 50_000]) for _ in range(9)))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    attempts = (await only_letter(trial)).attempts
    assert sum(len(a.message) + len(a.traceback) for a in attempts) <= LONGEST_HISTORY
    assert (attempts[0].number, attempts[-1].number) == (1, 9)


def with_desk(error: Exception) -> tuple[Trial, list[Event]]:
    """Give a service that fails, and what another is told of that."""
    told: list[Event] = []
    orders, desk = Service("orders"), Service("desk")

    @orders.on("OrderPlaced", failed="OrderFailed", documents=("orders", "order"))
    async def handle(event: Event, work: Work) -> None:
        raise error

    @desk.on("OrderFailed")
    async def tell(event: Event, work: Work) -> None:
        told.append(event)

    return Trial(orders, desk), told


async def test_passwords_in_errors_are_hidden_wherever_they_are_kept() -> None:
    trial, told = with_desk(ValueError("cannot reach amqp://guest:s3cret@broker"))
    await trial.publish("OrderPlaced", ORDER)
    await trial.run()
    letter = await only_letter(trial)
    (fact,) = trial.facts.of(DeadLettered)
    assert "amqp://guest:***@broker" in letter.last_error
    for kept in (letter, told, fact.last_error):
        assert "s3cret" not in repr(kept)


async def test_a_failed_event_is_published_once_with_what_it_was_about() -> None:
    trial, told = with_desk(ConnectionError("gone"))
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
    async def handle(event: Event, work: Work) -> None:
        raise ValueError(work.key)

    letter = await only_letter(await ran(handle, data, dedup=dedup))
    assert letter.idempotency_key == key
    assert letter.last_error.startswith(f"ValueError: orders/OrderPlaced/0/{key}")


@pytest.mark.parametrize("errors", [[], [ValueError("bad")]], ids=["done", "failed"])
async def test_idempotent_processing(errors: list[BaseException]) -> None:
    handler, trial = failing(*errors)
    await trial.publish("OrderPlaced", ORDER, event_id="e1")
    await trial.run()
    redeliver(trial, "e1", ORDER)
    await trial.run()
    assert handler.attempts == [1]
    assert [(f.count, f.why) for f in trial.facts.of(DuplicatesRecognised)] == [(1, "done")]
    assert await reasons(trial) == ["non_retryable"] * len(errors)
    assert (await trial.balance()).done == 1 - len(errors)


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


async def test_another_event_about_the_same_work_is_recognised_and_other_work_is_not() -> None:
    handler, trial = failing()
    for order in "aba":
        await trial.publish("OrderPlaced", {"order": order})
        await trial.run()
    assert handler.attempts == [1, 1]
    assert (await trial.balance()).done == 3
    await assert_all_is_accounted_for(trial)


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


# Events with one key of which some fail


def some_bad() -> Trial:
    orders, listening = Service("orders"), Service("listening")

    @orders.on("OrderPlaced", dedup="order", failed="OrderFailed")
    async def handle(event: Event, work: Work) -> None:
        if event.data["bad"]:
            raise ValueError("bad")
        work.documents("orders").add({"order": event.data["order"]})

    @listening.on("OrderFailed")
    async def note(event: Event, work: Work) -> None:
        work.documents("failures").add({})

    return Trial(orders, listening)


async def test_a_corrected_event_runs_although_one_with_its_key_failed_before() -> None:
    trial = some_bad()
    await trial.publish("OrderPlaced", {"order": "a", "bad": True})
    await trial.run()
    for _ in range(2):
        await trial.publish("OrderPlaced", {"order": "a", "bad": False})
    await trial.run()
    assert len(await trial.documents("orders")) == 1, "the corrected one, once"
    assert len(await trial.letters("orders.failed")) == 1
    await assert_all_is_accounted_for(trial)


async def test_events_with_one_key_that_fail_together_each_have_a_letter() -> None:
    trial = some_bad()
    for bad in (True, True, False, True, False):
        await trial.publish("OrderPlaced", {"order": "a", "bad": bad})
    await trial.run()
    letters = await trial.letters("orders.failed")
    assert len(await trial.documents("orders")) == 1
    assert len(letters) == len(await trial.documents("failures"))
    assert 2 <= len(letters) <= 3, "the last bad one may come after the good one, which did it"
    await assert_all_is_accounted_for(trial)
