"""What awaits a document, obstacle by obstacle, until a sweep does something."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headway import Lifecycle
from headway.core.prospect import prospect
from headway.core.sweep import Why
from headway.testing.ports import GiveUp, Leave, Requeue, SweepRule, instant

NOW = datetime(2030, 1, 31, 3, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
RULE = SweepRule(lifecycle=Lifecycle("messages"))


def at(offset: timedelta) -> str:
    return instant(NOW + offset)


@pytest.mark.parametrize(
    ("fields", "why", "due"),
    [
        ({}, None, 0 * HOUR),
        ({"status": "failed", "attemptCount": 1, "lastAttemptTime": at(-DAY)}, None, 0 * HOUR),
        (
            {"status": "failed", "attemptCount": 1, "lastAttemptTime": at(-MINUTE)},
            Why.BACKOFF,
            4 * MINUTE,
        ),
        ({"attemptCount": 1, "lastAttemptTime": at(-HOUR)}, Why.IN_HAND, 23 * HOUR),
        ({"createdAt": at(-MINUTE)}, Why.YOUNG, 14 * MINUTE),
        ({"status": "failed", "retryAt": at(2 * HOUR)}, Why.SCHEDULED, 2 * HOUR),
        ({"leaseToken": "w", "leaseUntil": at(MINUTE)}, Why.LEASED, MINUTE),
        ({"claimToken": "s", "claimUntil": at(MINUTE)}, Why.CLAIMED, MINUTE),
        # Behind the time that a person set, a worker may still have it.
        (
            {"attemptCount": 1, "lastAttemptTime": at(-HOUR), "retryAt": at(HOUR)},
            Why.SCHEDULED,
            23 * HOUR,
        ),
        # Behind its lease there is its backoff.
        (
            {
                "attemptCount": 2,
                "lastAttemptTime": at(-MINUTE),
                "leaseToken": "w",
                "leaseUntil": at(MINUTE),
            },
            Why.LEASED,
            9 * MINUTE,
        ),
    ],
)
def test_a_document_is_due_when_nothing_is_in_the_way(
    fields: dict[str, Any], why: Why | None, due: timedelta
) -> None:
    found = prospect({"_id": "m", **fields}, RULE, NOW)
    assert found.due == NOW + due
    assert isinstance(found.then, Requeue)
    assert found.judgement == (found.then if why is None else Leave(why))


def test_what_has_had_its_attempts_is_given_up_a_backoff_after_its_lease() -> None:
    document = {"_id": "m", "attemptCount": 3, "leaseToken": "w", "leaseUntil": at(MINUTE)}
    found = prospect(document, RULE, NOW)
    assert (found.judgement, found.then) == (Leave(Why.LEASED), GiveUp(3))
    assert found.due == NOW + MINUTE + 20 * MINUTE


@pytest.mark.parametrize("status", ["processed", "failed_max_retries", "on holiday"])
def test_what_is_settled_is_never_due(status: str) -> None:
    found = prospect({"_id": "m", "status": status}, RULE, NOW)
    assert (found.due, found.then) == (None, None)
