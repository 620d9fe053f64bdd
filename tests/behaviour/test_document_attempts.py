"""How an operation begins and ends its work on documents, from the handler's side."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from headway import Lifecycle, RetryPolicy, Service
from headway.facts import DuplicatesRecognised, LeaseLost
from headway.retrying import Exponential, NoJitter
from headway.settings import SweepSettings, WorkerSettings
from headway.testing.ports import Document
from headway.testing.trial import Trial, at_rest

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
STEADY = Exponential(base=10 * SECOND, cap=10 * SECOND, jitter=NoJitter())
ONCE = RetryPolicy(max_attempts=1, backoff=STEADY)
"""An event ends with its first failure, and its document is swept: the failure is transient."""


async def by_id(trial: Trial) -> dict[str, Document]:
    return {each["_id"]: each for each in await trial.documents("docs")}


@pytest.mark.parametrize("dedup", [None, "ids"])
async def test_a_document_that_comes_again_under_its_old_id_is_a_new_one(dedup: str | None) -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", max_attempts=2)], transient=ONCE)
    seen: list[str] = []

    @service.on("Made", documents=("docs", "ids"), dedup=dedup)
    async def handle(event: Any, work: Any) -> None:
        (document,) = await work.documents("docs").require(event.data["ids"])
        seen.append(document["text"])
        if document["text"] == "bad":
            raise RuntimeError("it cannot be read")

    trial = Trial(service)
    for text in ("bad", "good"):  # the second is what its owner brings instead, and no event comes
        await trial.put("docs", {"_id": "a", "status": "pending", "text": text})
        for _ in range(3):
            await trial.sweep()
            await trial.run()
            trial.clock.advance(HOUR)
    assert seen == ["bad", "bad", "good"]
    (document,) = await trial.documents("docs")
    assert document["status"] == "processed"


@pytest.mark.parametrize("lease", [None, MINUTE])
async def test_a_document_that_comes_between_the_begin_and_the_handler_is_processed(
    lease: timedelta | None,
) -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=lease)])

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        await trial.put("docs", {"_id": "b", "status": "pending"})  # as another program does
        await work.documents("docs").require(event.data["ids"])

    trial = Trial(service)
    await trial.put("docs", {"_id": "a", "status": "pending"})
    await trial.publish("Made", {"ids": ["a", "b"]})
    await trial.run()
    found = await by_id(trial)
    assert {one: each["status"] for one, each in found.items()} == dict.fromkeys("ab", "processed")
    assert {each["attemptCount"] for each in found.values()} == {1}


# Several documents


async def test_an_event_that_waits_for_one_document_counts_nothing_at_the_others() -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=MINUTE)])
    ran: list[str] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        if event.event_id == "slow":
            await trial.clock.wait(10 * SECOND)

    trial = Trial(service)
    await trial.put("docs", *({"_id": one, "status": "pending"} for one in "ab"))
    await trial.publish("Made", {"ids": ["a"]}, event_id="slow")
    async with trial.running():
        await trial.clock.wait(SECOND)
        for number in range(3):
            await trial.publish("Made", {"ids": ["a", "b"]}, event_id=f"both {number}")
            await trial.clock.wait(SECOND)
        assert (await by_id(trial))["b"] == {"_id": "b", "status": "pending"}
        await trial.clock.wait(3 * MINUTE)
    assert ran == ["slow", "both 0"]  # the others find nothing left to do
    assert {one: each["status"] for one, each in (await by_id(trial)).items()} == {
        "a": "processed", "b": "processed"
    }  # fmt: skip


@pytest.mark.parametrize("coroutine", [True, False])
async def test_a_handler_is_told_which_documents_are_left_to_do(*, coroutine: bool) -> None:
    service = Service("s")
    told: list[tuple[str, ...]] = []

    if coroutine:

        @service.on("Made", documents=("docs", "ids"))
        async def handle(event: Any, work: Any) -> None:
            told.append(work.document_ids)
    else:

        @service.on("Made", documents=("docs", "ids"))
        def handle_in_thread(event: Any, work: Any) -> None:
            told.append(work.document_ids)

    trial = Trial(service)
    statuses = ("pending", "processed", "failed_max_retries", "cancelled")
    await trial.put("docs", *({"_id": each, "status": each} for each in statuses))
    await trial.publish("Made", {"ids": [*statuses, "nobody"]})
    await trial.run()
    assert told == [("pending", "cancelled", "nobody")]
    assert {one: each["status"] for one, each in (await by_id(trial)).items()} == {
        "pending": "processed", "processed": "processed",
        "failed_max_retries": "failed_max_retries", "cancelled": "cancelled",
    }  # fmt: skip


# Overtaken


@pytest.mark.parametrize("error", [None, ValueError("too late, and wrong")])
async def test_an_attempt_that_was_overtaken_changes_nothing(error: Exception | None) -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", max_attempts=3)])
    runs = 0

    @service.on("Made", documents=("docs", "ids"), dedup="ids")
    async def handle(event: Any, work: Any) -> None:
        nonlocal runs
        runs += 1
        work.documents("effects").add({"run": runs})
        if runs == 1:
            await trial.clock.wait(20 * SECOND)
            if error is not None:
                raise error

    trial = Trial(service)
    await trial.put("docs", {"_id": "a", "status": "pending"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running():
        await trial.clock.wait(10 * SECOND)
        await trial.sweep(SweepSettings(cap=0, stuck_after=5 * SECOND, base_delay=SECOND))
        await trial.clock.wait(MINUTE)
    (document,) = await trial.documents("docs")
    assert (document["status"], document["attemptCount"]) == ("processed", 2)
    assert [each["run"] for each in await trial.documents("effects")] == [2]
    assert await trial.letters("s.failed") == []
    assert sum(fact.count for fact in trial.facts.of(DuplicatesRecognised)) == 1
    assert at_rest(await trial.count())


async def test_an_event_that_lost_its_lease_to_another_runs_again_where_work_is_left() -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=MINUTE)])
    runs = 0

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        nonlocal runs
        runs += 1
        work.documents("effects").add({"run": runs})
        if runs == 1:  # another event takes the document over, and leaves it pending
            await trial.put("docs", {"_id": "a", "status": "pending", "lastOperation": "other"})

    trial = Trial(service)
    await trial.put("docs", {"_id": "a", "status": "pending"})
    await trial.publish("Made", {"ids": ["a"]})
    await trial.run(at_most=HOUR)
    (document,) = await trial.documents("docs")
    assert document["status"] == "processed"
    assert [each["run"] for each in await trial.documents("effects")] == [2]
    assert await trial.letters("s.failed") == []


@pytest.mark.parametrize("error", [None, ValueError("too late, and wrong")])
async def test_a_worker_that_lost_its_lease_commits_nothing(error: Exception | None) -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=MINUTE)])
    runs = 0

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        nonlocal runs
        runs += 1
        work.documents("effects").add({"run": runs})
        if runs == 1:  # another worker has begun with the same event
            (document,) = await trial.documents("docs")
            await trial.put("docs", {**document, "leaseToken": "another"})
            if error is not None:
                raise error

    trial = Trial(service)
    await trial.put("docs", {"_id": "a", "status": "pending"})
    await trial.publish("Made", {"ids": ["a"]})
    await trial.run(at_most=HOUR)
    assert [each["run"] for each in await trial.documents("effects")] == [2]
    assert len(trial.facts.of(LeaseLost)) == 1
    assert await trial.letters("s.failed") == []
    (document,) = await trial.documents("docs")
    assert (document["status"], document["attemptCount"]) == ("processed", 1)


async def test_two_events_about_one_document_do_not_overtake_each_other_for_ever() -> None:
    service = Service("s")
    ran: list[str] = []

    @service.on("Made", documents=("docs", "ids"), dedup="ids")
    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        work.documents("effects").add({"run": event.event_id})
        await trial.clock.wait(SECOND)

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"})
    for one in ("1", "2"):
        await trial.publish("Made", {"ids": ["a"]}, event_id=one)
    await trial.run()
    assert ran == ["1", "2"]
    assert [each["run"] for each in await trial.documents("effects")] == ["2"]
    (document,) = await trial.documents("docs")
    assert (document["status"], document["attemptCount"]) == ("processed", 2)


@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_what_was_not_overtaken_is_finished_without_the_rest(
    error: Exception | None,
) -> None:
    service = Service("s")
    told: list[tuple[str, ...]] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        told.append(work.document_ids)
        for one in work.document_ids:
            work.documents("effects").add({"doc": one})
        await trial.clock.wait(SECOND if len(event.data["ids"]) == 2 else 5 * SECOND)
        if error is not None and len(event.data["ids"]) == 2:
            raise error

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"}, {"_id": "b"})
    await trial.publish("Made", {"ids": ["a", "b"]})
    await trial.publish("Made", {"ids": ["a"]})
    await trial.run()
    documents = await by_id(trial)
    assert documents["a"]["status"] == "processed"
    assert documents["b"]["status"] == ("processed" if error is None else "failed")
    assert told == [("a", "b"), ("a",), *([("b",)] if error is None else [])]
    assert sorted(each["doc"] for each in await trial.documents("effects")) == (
        ["a", "b"] if error is None else ["a"]
    )
    assert len(await trial.letters("s.failed")) == (error is not None)


async def test_a_document_that_is_replaced_in_hand_is_worked_on_again() -> None:
    service = Service("s")
    seen: list[str] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        (document,) = await work.documents("docs").require(work.document_ids)
        seen.append(document["text"])
        await trial.clock.wait(MINUTE)

    trial = Trial(service)
    await trial.put("docs", {"_id": "a", "text": "old"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running():
        await trial.clock.wait(MINUTE / 2)
        await trial.put("docs", {"_id": "a", "text": "new"})
        await trial.clock.wait(2 * MINUTE)
    assert seen == ["old", "new"]
    (document,) = await trial.documents("docs")
    assert (document["status"], document["text"]) == ("processed", "new")


@pytest.mark.parametrize("lease", [None, MINUTE])
async def test_a_handler_that_replaces_its_own_document_ends_as_a_letter(
    lease: timedelta | None,
) -> None:
    policy = RetryPolicy(max_attempts=3, backoff=STEADY)
    service = Service("s", transient=policy, lifecycles=[Lifecycle("docs", lease=lease)])
    ran: list[datetime] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        ran.append(trial.clock.now())
        assert len(ran) < 9, "it spins"
        await trial.put("docs", {"_id": "a", "text": "new"})  # with a client of its own
        work.documents("effects").add({"run": len(ran)})

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"}, {"_id": "b"})
    await trial.publish("Made", {"ids": ["a", "b"]})
    await trial.run(at_most=HOUR)
    assert len(ran) == 3
    assert ran[0] < ran[1] < ran[2], "it waits in between"
    (letter,) = await trial.letters("s.failed")
    assert letter.error_type == "DocumentReplacedError"
    assert "docs/a does not say any more that this attempt has it" in letter.last_error
    documents = await by_id(trial)
    assert "status" not in documents["a"]
    assert (documents["b"]["status"], documents["b"].get("leaseToken")) == ("failed", None)
    assert list(await trial.documents("effects")) == []


@pytest.mark.parametrize("lease", [None, MINUTE])
async def test_a_document_that_is_gone_does_not_keep_others_from_having_failed(
    lease: timedelta | None,
) -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=lease)])

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        for one in "bd":
            del trial.state.documents["docs"][one]
        raise ValueError("it cannot be read")

    trial = Trial(service)
    await trial.put("docs", *({"_id": one} for one in "abcd"))
    await trial.publish("Made", {"ids": list("abcd")})
    await trial.run()
    documents = await by_id(trial)
    assert list(documents) == ["a", "c"]
    for document in documents.values():
        assert (document["status"], document.get("leaseToken")) == ("failed", None)
        assert document["lastError"]["message"] == "it cannot be read"
    assert len(await trial.letters("s.failed")) == 1


# Two events about one document


@pytest.mark.parametrize("lease", [None, MINUTE])
async def test_the_retries_of_two_events_about_one_document_count_nothing(
    lease: timedelta | None,
) -> None:
    policy = RetryPolicy(max_attempts=4, backoff=STEADY)
    lifecycle = Lifecycle("docs", max_attempts=3, lease=lease)
    service = Service("s", transient=policy, lifecycles=[lifecycle])
    ran: list[str] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        raise OSError("no space left")

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"})
    async with trial.running():
        for one in "AB":
            await trial.publish("Made", {"ids": ["a"]}, event_id=one)
            await trial.clock.wait(5 * SECOND)
        await trial.clock.wait(5 * MINUTE)
    assert ran == list("AB" * 4)
    assert len(await trial.letters("s.failed")) == 2
    (document,) = await trial.documents("docs")
    assert (document["status"], document["attemptCount"]) == ("failed", 2)


async def test_an_event_that_is_delivered_twice_at_once_runs_once() -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=MINUTE)])
    ran: list[datetime] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        ran.append(trial.clock.now())
        await trial.clock.wait(10 * SECOND)

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"})
    await trial.publish("Made", {"ids": ["a"]}, event_id="once")
    async with trial.running():
        await trial.clock.wait(SECOND)
        trial.state.duplicate("once")
        await trial.clock.wait(3 * MINUTE)
    assert len(ran) == 1
    assert at_rest(await trial.count())
    (document,) = await trial.documents("docs")
    assert (document["status"], document["attemptCount"]) == ("processed", 1)


# Waiting for a retry


def _slow_to_retry(lease: timedelta) -> Service:
    slow = Exponential(base=20 * MINUTE, cap=20 * MINUTE, jitter=NoJitter())
    policy = RetryPolicy(max_attempts=3, backoff=slow, ttl=5 * HOUR)
    return Service("s", transient=policy, lifecycles=[Lifecycle("docs", lease=lease)])


async def test_a_document_whose_event_waits_for_its_retry_is_not_swept() -> None:
    service = _slow_to_retry(MINUTE)
    ran: list[int] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        ran.append(work.attempt)
        if work.attempt == 1:
            raise OSError("no space left")

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running():
        for _ in range(4):
            await trial.clock.wait(5 * MINUTE - SECOND)
            assert (await trial.sweep()).collections[0].requeued == 0
        start = trial.clock.now()
    async with trial.running():  # another worker has not to wait for the lease of the first
        while len(ran) == 1 and trial.clock.now() < start + HOUR:
            await trial.clock.wait(SECOND)
        assert trial.clock.now() < start + MINUTE
        await trial.clock.wait(MINUTE)
    (document,) = await trial.documents("docs")
    assert ran == [1, 2]
    assert (document["status"], document["attemptCount"]) == ("processed", 1)


async def test_a_retry_that_never_comes_is_swept_when_it_is_overdue() -> None:
    service = _slow_to_retry(MINUTE)

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        raise OSError("no space left")

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running():
        await trial.clock.wait(MINUTE)
    trial.state.items.clear()  # the bus has lost everything
    await trial.clock.wait(30 * MINUTE)
    assert (await trial.sweep()).collections[0].requeued == 0
    await trial.clock.wait(10 * MINUTE)
    assert (await trial.sweep()).collections[0].requeued == 1


async def test_what_a_stopped_worker_hands_back_is_free_at_once() -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=HOUR)])
    ran: list[datetime] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        ran.append(trial.clock.now())
        if len(ran) == 1:
            await trial.clock.wait(HOUR)

    trial = Trial(service, settings=WorkerSettings(grace=SECOND))
    await trial.put("docs", {"_id": "a"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running():
        await trial.clock.wait(MINUTE)
    await trial.run()
    assert len(ran) == 2
    assert ran[1] - ran[0] < 2 * MINUTE
    (document,) = await trial.documents("docs")
    assert (document["status"], document["attemptCount"]) == ("processed", 1)


# Whose it is not


async def test_no_event_is_run_for_a_document_that_has_had_all_its_attempts() -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", max_attempts=3)], transient=ONCE)
    ran: list[str] = []

    @service.on("Made", documents=("docs", "ids"), dedup="ids")
    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        if len(ran) <= 3:
            raise RuntimeError("it cannot be read")

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"})
    for number in range(5):
        await trial.publish("Made", {"ids": ["a"]}, event_id=f"{number}")
        await trial.run()
    assert ran == ["0", "1", "2"]
    (document,) = await trial.documents("docs")
    assert (document["status"], document["attemptCount"]) == ("failed", 3)
    assert [each.why for each in trial.facts.of(DuplicatesRecognised)] == ["superseded"] * 2
    await trial.sweep()
    (document,) = await trial.documents("docs")
    assert document["status"] == "failed_max_retries"
    # A person decides: then the same work, sent anew, is no duplicate of what was never done.
    await trial.put("docs", {"_id": "a"})
    await trial.publish("Made", {"ids": ["a"]}, event_id="anew")
    await trial.run()
    assert ran == ["0", "1", "2", "anew"]


async def test_the_number_of_sweepers_rules_what_they_send_and_the_lifecycle_all_else() -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", max_attempts=2)], transient=ONCE)
    ran: list[str] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        raise RuntimeError("it cannot be read")

    trial = Trial(service)
    await trial.put("docs", {"_id": "a"})
    for number in range(3):
        await trial.publish("Made", {"ids": ["a"]}, event_id=f"{number}")
        await trial.run()
    assert ran == ["0", "1"]
    for _ in range(3):
        await trial.clock.wait(2 * HOUR)
        await trial.sweep(SweepSettings(max_attempts={"DOCS": 4}))
        await trial.run()
    (document,) = await trial.documents("docs")
    assert (len(ran), document["attemptCount"]) == (4, 4)
    assert document["status"] == "failed_max_retries"


async def test_a_status_of_somebody_else_stays_as_it_is() -> None:
    service = Service("s")
    ran: list[str] = []

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None:
        ran.append(event.data["ids"])
        if event.data["ids"] == "b":
            raise ValueError("no")

    trial = Trial(service)
    theirs = [{"_id": one, "status": "cancelled"} for one in "ab"]
    await trial.put("docs", *theirs)
    for one in "ab":
        await trial.publish("Made", {"ids": one})
    await trial.run()
    assert ran == ["a", "b"]
    assert list(await trial.documents("docs")) == theirs
    assert len(await trial.letters("s.failed")) == 1


async def test_nobody_waits_for_a_lease_that_ends_in_years() -> None:
    service = Service("s", lifecycles=[Lifecycle("docs", lease=MINUTE)])

    @service.on("Made", documents=("docs", "ids"))
    async def handle(event: Any, work: Any) -> None: ...

    trial = Trial(service)
    far = {"_id": "a", "leaseToken": "x", "leaseUntil": "2099-01-01T00:00:00Z"}
    await trial.put("docs", far)
    await trial.publish("Made", {"ids": ["a"]})
    await trial.run(at_most=HOUR)
    (document,) = await trial.documents("docs")
    assert document["status"] == "processed"
