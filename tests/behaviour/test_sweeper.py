"""What a sweep does with documents that are stuck, on every engine."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from headway import Lifecycle, Service
from headway.core.sweep_totals import GROUP, from_zero, key
from headway.facts import DocumentGivenUp, DocumentsRequeued, Skip, Status, SweepEnded
from headway.testing.ports import instant, moment, sweep_operation, sweep_run
from tests.behaviour.sweeps import (
    CHUNKING,
    DAY,
    HOUR,
    MINUTE,
    PARSING,
    Yard,
    chunking,
    data_of,
    parsing,
    sweeping_of,
)


def archive(one: str = "a", **fields: Any) -> dict[str, Any]:
    return {"_id": one, "source": "mail", "status": "pending", "attemptCount": 0, **fields}


def when(value: Any) -> Any:
    return moment(value)


# The scenarios of the document


async def test_a_document_whose_event_was_lost_gets_it_again(yard: Yard) -> None:
    await yard.put("archives", archive(lastAttemptTime=None))
    ended = await yard.sweep(parsing())
    after = await yard.get("archives", "a")
    assert (after["attemptCount"], after["status"]) == (1, "pending")
    assert when(after["lastAttemptTime"]) == yard.now
    (delivery,) = await yard.sent(PARSING)
    assert data_of(delivery) == {"archive_id": "a", "source": "mail"}
    operation = sweep_operation("archives", "a", 1, yard.now)
    assert (delivery.travel.operation, delivery.travel.generation) == (
        operation, sweep_run(operation)
    )  # fmt: skip
    assert after["lastOperation"] == delivery.travel.operation
    assert after.get("claimToken") is None
    assert ended.status is Status.SUCCESS
    assert await yard.totals() == {
        key("retry_job_documents_requeued_total", collection="archives"): 1,
        key("retry_job_runs_total", status="success"): 1,
    }


@pytest.mark.parametrize("threshold", [timedelta(hours=24), timedelta()])
async def test_the_next_attempt_waits_for_its_backoff(yard: Yard, threshold: timedelta) -> None:
    status = "failed" if threshold else "pending"
    last = yard.ago(5 * MINUTE)
    await yard.put("archives", archive(status=status, attemptCount=2, lastAttemptTime=last))
    ended = await yard.sweep(parsing(), stuck_after=threshold)
    assert ended.collections[0].skipped == {Skip.BACKOFF: 1}
    assert await yard.sent(PARSING) == []
    yard.clock.advance(10 * MINUTE)
    ended = await yard.sweep(parsing(), stuck_after=threshold)
    assert ended.collections[0].requeued == 1
    assert len(await yard.sent(PARSING)) == 1
    assert (await yard.get("archives", "a"))["attemptCount"] == 3
    totals = await yard.totals()
    assert totals[key("retry_job_documents_skipped_backoff_total", collection="archives")] == 1
    assert totals[key("retry_job_documents_requeued_total", collection="archives")] == 1


async def test_a_document_that_has_had_all_its_attempts_is_given_up(yard: Yard) -> None:
    last = yard.ago(HOUR)
    error = {"type": "ValueError", "message": "no boundary", "at": last}
    await yard.put(
        "archives",
        archive(status="failed", attemptCount=3, lastAttemptTime=last, lastError=error),
    )
    ended = await yard.sweep(parsing())
    assert (await yard.get("archives", "a"))["status"] == "failed_max_retries"
    assert await yard.sent(PARSING) == []
    (fact,) = yard.facts.of(DocumentGivenUp)
    assert (fact.collection, fact.document_id, fact.attempts) == ("archives", "a", 3)
    assert when(fact.last_attempt_time) == when(last)
    assert fact.last_error == "ValueError: no boundary"
    (swept,) = ended.collections
    assert (swept.given_up, swept.requeued) == (1, 0)
    assert swept.tally is not None
    assert (swept.tally.stuck, swept.tally.given_up) == (0, 1)
    exceeded = key("retry_job_documents_max_retries_exceeded_total", collection="archives")
    assert (await yard.totals())[exceeded] == 1
    again = await yard.sweep(parsing())
    assert again.collections[0].given_up == 0
    assert (await yard.totals())[exceeded] == 1


# Both gates


@pytest.mark.parametrize(
    ("status", "age", "sent"),
    [
        ("pending", 23 * HOUR, 0),
        ("pending", 25 * HOUR, 1),
        ("processing", 25 * HOUR, 1),
        (None, 25 * HOUR, 1),
        ("failed", 4 * MINUTE, 0),
        ("failed", 6 * MINUTE, 1),
        ("processed", 25 * HOUR, 0),
        ("completed", 25 * HOUR, 0),
        ("failed_max_retries", 25 * HOUR, 0),
        ("somebody else's", 25 * HOUR, 0),
    ],
)
async def test_when_a_document_is_due(
    yard: Yard, status: str | None, age: timedelta, sent: int
) -> None:
    await yard.put(
        "messages",
        {"_id": "m", "status": status, "attemptCount": 1, "lastAttemptTime": yard.ago(age)},
    )
    await yard.sweep(chunking())
    found = await yard.sent(CHUNKING)
    assert [data_of(each) for each in found] == [{"message_doc_ids": ["m"]}] * sent


async def test_a_new_document_is_left_to_its_first_event_for_a_while(yard: Yard) -> None:
    await yard.put("archives", archive(createdAt=yard.ago(14 * MINUTE)))
    await yard.sweep(parsing())
    assert await yard.sent(PARSING) == []
    yard.clock.advance(2 * MINUTE)
    await yard.sweep(parsing())
    assert len(await yard.sent(PARSING)) == 1


async def test_old_documents_that_know_nothing_of_attempts_are_swept_too(yard: Yard) -> None:
    naive = (yard.now - 2 * DAY).replace(tzinfo=None).isoformat()
    await yard.put(
        "messages",
        {"_id": "bare"},
        {"_id": "naive", "status": "pending", "attemptCount": 1, "lastAttemptTime": naive},
        {"_id": "nonsense", "status": "pending", "attemptCount": "x", "lastAttemptTime": "soon"},
    )
    ended = await yard.sweep(chunking())
    assert ended.status is Status.SUCCESS
    ids = [data_of(each)["message_doc_ids"] for each in await yard.sent(CHUNKING)]
    assert sorted(ids) == [["bare"], ["naive"], ["nonsense"]]


async def test_flags_say_it_where_no_status_does(yard: Yard) -> None:
    service = Service("embedding", lifecycles=[Lifecycle("chunks", flag="embedding_generated")])

    @service.on("ChunksPrepared", documents=("chunks", "chunk_ids"))
    async def embed(event: Any, work: Any) -> None: ...

    failed, began = yard.ago(HOUR), yard.ago(2 * HOUR)
    await yard.put(
        "chunks",
        {"_id": "done", "embedding_generated": True},
        {
            "_id": "failed",
            "embedding_generated": False,
            "attemptCount": 1,
            "lastAttemptTime": began,
            "lastFailedAt": failed,
        },
        {
            "_id": "fresh",
            "embedding_generated": False,
            "attemptCount": 1,
            "lastAttemptTime": failed,
        },
        {
            "_id": "spent",
            "embedding_generated": False,
            "attemptCount": 5,
            "lastAttemptTime": began,
            "lastFailedAt": failed,
        },
    )
    ended = await yard.sweep(service)
    ids = [data_of(each)["chunk_ids"] for each in await yard.sent("embedding.chunks.prepared")]
    assert ids == [["failed"]]
    assert ended.collections[0].given_up == 1
    assert (await yard.get("chunks", "spent"))["status"] == "failed_max_retries"


@pytest.mark.parametrize(
    ("collection", "limits", "most"),
    [
        ("archives", {}, 3),
        ("messages", {}, 3),
        ("chunks", {}, 5),
        ("threads", {}, 5),
        ("other", {}, 3),
        ("other", {"OTHER": 2}, 2),
        ("chunks", {"CHUNKS": 7}, 7),
    ],
)
async def test_how_many_attempts_a_collection_gets(
    quick: Yard, collection: str, limits: dict[str, int], most: int
) -> None:
    service = Service("any")

    @service.on("Event", documents=(collection, "ids"))
    async def handle(event: Any, work: Any) -> None: ...

    last = quick.ago(2 * DAY)
    for attempts in (most - 1, most):
        document = {"_id": str(attempts), "attemptCount": attempts, "lastAttemptTime": last}
        await quick.put(collection, {**document, "status": "failed"})
    await quick.sweep(service, max_attempts=limits)
    states = {one["_id"]: one["status"] for one in await quick.all(collection)}
    assert states == {str(most - 1): "pending", str(most): "failed_max_retries"}


# Numbers


async def test_every_counter_is_there_from_the_first_run_on(yard: Yard) -> None:
    await yard.sweep(parsing(), chunking())
    kept = await sweeping_of(yard.engine).totals.add(GROUP, {})
    zeros = from_zero(["archives", "messages"])
    assert set(kept) == set(zeros)
    assert kept[key("retry_job_runs_total", status="success")] == 1
    assert kept[key("retry_job_runs_total", status="failure")] == 0
    assert kept["retry_job_duration_seconds_count"] == 1
    assert kept[key("retry_job_duration_seconds_bucket", le="+Inf")] == 1


async def test_totals_of_several_processes_add_up(yard: Yard) -> None:
    for number in range(3):
        await yard.put("archives", archive(str(number)))
        ended = await yard.sweep(parsing())
    assert ended.totals is not None
    assert ended.totals[key("retry_job_documents_requeued_total", collection="archives")] == 3
    assert ended.totals[key("retry_job_runs_total", status="success")] == 3


async def test_what_is_told_at_the_end_of_a_run(yard: Yard) -> None:
    await yard.put("archives", archive("a"), archive("b", status="failed", attemptCount=3))
    await yard.put(
        "messages",
        {"_id": "m", "status": "failed", "attemptCount": 2, "lastAttemptTime": yard.ago(MINUTE)},
    )
    ended = await yard.sweep(parsing(), chunking())
    assert yard.facts.of(SweepEnded) == [ended]
    archives, messages = ended.collections
    assert (archives.collection, archives.requeued, archives.given_up) == ("archives", 1, 1)
    assert (messages.requeued, messages.skipped) == (0, {Skip.BACKOFF: 1})
    assert messages.tally is not None
    assert messages.tally.stuck == 1
    assert messages.tally.oldest == yard.now - MINUTE
    (requeued,) = yard.facts.of(DocumentsRequeued)
    assert requeued.document_ids == ("a",)


async def test_only_the_collections_that_are_asked_for(quick: Yard) -> None:
    await quick.put("archives", archive())
    await quick.put("messages", {"_id": "m"})
    sweeper = quick.sweeper(parsing(), chunking())
    assert [target.collection for target in sweeper.targets] == ["archives", "messages"]
    assert [rule.collection for rule in sweeper.rules] == ["archives", "messages"]


async def test_a_scheduled_document_waits_for_its_time_and_then_not_for_its_backoff(
    yard: Yard,
) -> None:
    at = instant(yard.now + HOUR)
    last = yard.ago(-55 * MINUTE)
    await yard.put(
        "archives", archive(status="failed", attemptCount=2, lastAttemptTime=last, retryAt=at)
    )
    await yard.sweep(parsing())
    assert await yard.sent(PARSING) == []
    yard.clock.advance(HOUR)
    await yard.sweep(parsing())
    assert len(await yard.sent(PARSING)) == 1


async def test_two_sweepers_at_once_send_each_document_once(yard: Yard) -> None:
    last = yard.ago(2 * DAY)
    document = {"status": "failed", "attemptCount": 1, "lastAttemptTime": last}
    await yard.put("messages", *({"_id": f"m{n}", **document} for n in range(1200)))
    sweepers = [yard.sweeper(chunking(), engine=yard.new_engine()) for _ in range(2)]
    ended = await asyncio.gather(*(each.sweep_once() for each in sweepers))
    assert sum(each.collections[0].requeued for each in ended) == 1200
    ids = [data_of(each)["message_doc_ids"][0] for each in await yard.sent(CHUNKING)]
    assert len(ids) == len(set(ids)) == 1200
    found = await yard.all("messages")
    assert {each["attemptCount"] for each in found} == {2}
    assert {each["sweepGeneration"] for each in found} == {1}
