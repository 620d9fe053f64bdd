"""What a sweep does with documents that are stuck, on every engine."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from headway.facts import DocumentGivenUp, Skip, Status
from headway.testing.ports import moment, sweep_operation, sweep_run
from tests.behaviour.sweeps import (
    CHUNKING,
    DAY,
    HOUR,
    MINUTE,
    PARSING,
    Yard,
    chunking,
    data_of,
    lost,
    parsing,
    sweeping_of,
)


def archive(one: str = "a", **fields: Any) -> dict[str, Any]:
    return lost(one, source="mail", **fields)


async def test_a_document_whose_event_was_lost_gets_it_again(yard: Yard) -> None:
    await yard.put("archives", archive(lastAttemptTime=None))
    ended = await yard.sweep(parsing())
    after = await yard.get("archives", "a")
    assert (after["attemptCount"], after["status"]) == (1, "pending")
    assert moment(after["lastAttemptTime"]) == yard.now
    (delivery,) = await yard.sent(PARSING)
    assert data_of(delivery) == {"archive_id": "a", "source": "mail"}
    operation = sweep_operation("archives", "a", 1, yard.now)
    assert (delivery.travel.operation, delivery.travel.generation) == (
        operation, sweep_run(operation)
    )  # fmt: skip
    assert (after["lastOperation"], after.get("claimToken")) == (operation, None)
    assert ended.status is Status.SUCCESS
    assert await yard.totals() == {
        "retry_job_documents_requeued_total|collection=archives": 1,
        "retry_job_runs_total|status=success": 1,
    }


@pytest.mark.parametrize(("status", "threshold"), [("failed", DAY), ("pending", timedelta())])
async def test_the_next_attempt_waits_for_its_backoff(
    quick: Yard, status: str, threshold: timedelta
) -> None:
    last = quick.ago(5 * MINUTE)
    await quick.put("archives", archive(status=status, attemptCount=2, lastAttemptTime=last))
    ended = await quick.sweep(parsing(), stuck_after=threshold)
    assert ended.collections[0].skipped == {Skip.BACKOFF: 1}
    assert await quick.sent(PARSING) == []
    quick.clock.advance(10 * MINUTE)
    ended = await quick.sweep(parsing(), stuck_after=threshold)
    assert ended.collections[0].requeued == len(await quick.sent(PARSING)) == 1
    assert (await quick.get("archives", "a"))["attemptCount"] == 3
    totals = await quick.totals()
    assert totals["retry_job_documents_skipped_backoff_total|collection=archives"] == 1
    assert totals["retry_job_documents_requeued_total|collection=archives"] == 1


async def test_a_document_that_has_had_all_its_attempts_is_given_up(yard: Yard) -> None:
    last = yard.ago(HOUR)
    error = {"type": "ValueError", "message": "no boundary", "at": last}
    await yard.put(
        "archives",
        archive(status="failed", attemptCount=3, lastAttemptTime=last, lastError=error),
    )
    for given_up in (1, 0):
        (swept,) = (await yard.sweep(parsing())).collections
        assert (swept.given_up, swept.requeued) == (given_up, 0)
        assert swept.tally is not None
        assert (swept.tally.stuck, swept.tally.given_up) == (0, 1)
    assert (await yard.get("archives", "a"))["status"] == "failed_max_retries"
    assert await yard.sent(PARSING) == []
    (fact,) = yard.facts.of(DocumentGivenUp)
    assert (fact.collection, fact.document_id, fact.attempts) == ("archives", "a", 3)
    assert moment(fact.last_attempt_time) == moment(last)
    assert fact.last_error == "ValueError: no boundary"
    exceeded = "retry_job_documents_max_retries_exceeded_total|collection=archives"
    assert (await yard.totals())[exceeded] == 1


async def test_when_a_document_is_due(yard: Yard) -> None:
    def tried(status: str | None, age: timedelta) -> dict[str, Any]:
        return {"status": status, "attemptCount": 1, "lastAttemptTime": yard.ago(age)}

    naive = (yard.now - 2 * DAY).replace(tzinfo=None).isoformat()
    due = {
        "pending": tried("pending", 25 * HOUR),
        "processing": tried("processing", 25 * HOUR),
        "without status": tried(None, 25 * HOUR),
        "failed": tried("failed", 6 * MINUTE),
        "no longer new": {"status": "pending", "createdAt": yard.ago(16 * MINUTE)},
        "bare": {},
        "naive": {**tried("pending", DAY), "lastAttemptTime": naive},
        "nonsense": {"status": "pending", "attemptCount": "x", "lastAttemptTime": "soon"},
    }
    others = {
        "in hand": tried("pending", 23 * HOUR),
        "failed just now": tried("failed", 4 * MINUTE),
        "new": {"status": "pending", "createdAt": yard.ago(14 * MINUTE)},
        **{one: tried(one, 25 * HOUR) for one in ("processed", "completed", "failed_max_retries")},
        "of another program": tried("cancelled", 25 * HOUR),
    }
    await yard.put("messages", *({"_id": one, **each} for one, each in {**due, **others}.items()))
    ended = await yard.sweep(chunking())
    assert ended.status is Status.SUCCESS
    assert sorted(await yard.sent_ids()) == sorted(due)


async def test_every_counter_is_there_from_the_first_run_on_and_processes_add_up(
    quick: Yard,
) -> None:
    await quick.sweep(parsing(), chunking())
    kept = await sweeping_of(quick.engine).totals.add("retry_job", {})
    for collection in ("archives", "messages"):
        for name in ("requeued", "skipped_backoff", "max_retries_exceeded"):
            assert kept[f"retry_job_documents_{name}_total|collection={collection}"] == 0
    assert kept["retry_job_runs_total|status=success"] == 1
    assert kept["retry_job_runs_total|status=failure"] == 0
    assert kept["retry_job_duration_seconds_bucket|le=+Inf"] == 1
    for number in range(3):
        await quick.put("archives", archive(str(number)))
        ended = await quick.sweep(parsing())
    assert ended.totals is not None
    assert ended.totals["retry_job_documents_requeued_total|collection=archives"] == 3
    assert ended.totals["retry_job_runs_total|status=success"] == 4


async def test_two_sweepers_at_once_send_each_document_once(yard: Yard) -> None:
    document = {"status": "failed", "attemptCount": 1, "lastAttemptTime": yard.ago(2 * DAY)}
    await yard.put("messages", *({"_id": f"m{n}", **document} for n in range(300)))
    sweepers = [yard.sweeper(chunking(), engine=yard.new_engine()) for _ in range(2)]
    ended = await asyncio.gather(*(each.sweep_once() for each in sweepers))
    assert sum(each.collections[0].requeued for each in ended) == 300
    deliveries = await yard.sent(CHUNKING)
    assert len(deliveries) == len({each.travel.operation for each in deliveries}) == 300
    found = await yard.all("messages")
    assert {(each["attemptCount"], each["sweepGeneration"]) for each in found} == {(2, 1)}
