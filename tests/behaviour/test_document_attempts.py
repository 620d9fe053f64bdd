"""How an operation begins and ends its work on documents, from the handler's side."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from headway import Lifecycle, RetryPolicy, Service
from headway.facts import DuplicatesRecognised, LeaseLost
from headway.retrying import TRANSIENT, Exponential, NoJitter
from headway.settings import SweepSettings, WorkerSettings
from headway.testing.ports import Document
from headway.testing.trial import Trial, at_rest

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
STEADY = Exponential(base=10 * SECOND, cap=10 * SECOND, jitter=NoJitter())
ONCE = RetryPolicy(max_attempts=1, backoff=STEADY)
"""An event ends with its first failure, and its document is swept: the failure is transient."""
LEASES = pytest.mark.parametrize("lease", [None, MINUTE])


def trial_of(
    handle: Callable[[Any, Any], Any],
    *,
    dedup: str | None = None,
    transient: RetryPolicy = TRANSIENT,
    settings: WorkerSettings | None = None,
    **lifecycle: Any,
) -> Trial:
    """Give the trial of a service that works on documents by their ids."""
    service = Service("s", lifecycles=[Lifecycle("docs", **lifecycle)], transient=transient)
    service.on("Made", documents=("docs", "ids"), dedup=dedup)(handle)
    return Trial(service, settings=settings)


async def by_id(trial: Trial) -> dict[str, Document]:
    return {each["_id"]: each for each in await trial.documents("docs")}


async def state(trial: Trial) -> tuple[Any, Any]:
    """Say how the only document stands."""
    (document,) = await trial.documents("docs")
    return document["status"], document["attemptCount"]


async def effects(trial: Trial) -> list[Any]:
    return [each["run"] for each in await trial.documents("effects")]


@pytest.mark.parametrize("dedup", [None, "ids"])
async def test_a_document_that_comes_again_under_its_old_id_is_a_new_one(dedup: str | None) -> None:
    seen: list[str] = []

    async def handle(event: Any, work: Any) -> None:
        (document,) = await work.documents("docs").require(event.data["ids"])
        seen.append(document["text"])
        if document["text"] == "bad":
            raise RuntimeError("it cannot be read")

    trial = trial_of(handle, dedup=dedup, transient=ONCE, max_attempts=2)
    for text in ("bad", "good"):  # the second is what its owner brings instead, and no event comes
        await trial.put("docs", {"_id": "a", "status": "pending", "text": text})
        for _ in range(3):
            await trial.sweep()
            await trial.run()
            trial.clock.advance(HOUR)
    assert seen == ["bad", "bad", "good"]
    assert (await state(trial))[0] == "processed"


@pytest.mark.parametrize("coroutine", [True, False])
async def test_a_handler_is_told_which_documents_are_left_to_do(*, coroutine: bool) -> None:
    told: list[tuple[str, ...]] = []

    async def handle(event: Any, work: Any) -> None:
        told.append(work.document_ids)

    def handle_in_thread(event: Any, work: Any) -> None:
        told.append(work.document_ids)

    trial = trial_of(handle if coroutine else handle_in_thread)
    after = {
        "pending": "processed", "processed": "processed",
        "failed_max_retries": "failed_max_retries", "cancelled": "cancelled",
    }  # fmt: skip
    await trial.put("docs", *({"_id": each, "status": each} for each in after))
    await trial.publish("Made", {"ids": [*after, "not there"]})
    await trial.run()
    assert told == [("pending", "cancelled", "not there")]
    assert {one: each["status"] for one, each in (await by_id(trial)).items()} == after


# Overtaken


@pytest.mark.parametrize("error", [None, ValueError("too late, and wrong")])
async def test_an_attempt_that_was_overtaken_changes_nothing(error: Exception | None) -> None:
    runs = 0

    async def handle(event: Any, work: Any) -> None:
        nonlocal runs
        runs += 1
        work.documents("effects").add({"run": runs})
        if runs == 1:
            await trial.clock.wait(20 * SECOND)
            if error is not None:
                raise error

    trial = trial_of(handle, dedup="ids", max_attempts=3)
    await trial.put("docs", {"_id": "a", "status": "pending"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running():
        await trial.clock.wait(10 * SECOND)
        await trial.sweep(SweepSettings(cap=0, stuck_after=5 * SECOND, base_delay=SECOND))
        await trial.clock.wait(MINUTE)
    assert (await state(trial), await effects(trial)) == (("processed", 2), [2])
    assert await trial.letters("s.failed") == []
    assert sum(fact.count for fact in trial.facts.of(DuplicatesRecognised)) == 1
    assert at_rest(await trial.balance())


@pytest.mark.parametrize("error", [None, ValueError("too late, and wrong")])
async def test_a_worker_that_lost_its_lease_commits_nothing(error: Exception | None) -> None:
    runs = 0

    async def handle(event: Any, work: Any) -> None:
        nonlocal runs
        runs += 1
        work.documents("effects").add({"run": runs})
        if runs == 1:  # another worker has begun with the same event
            (document,) = await trial.documents("docs")
            await trial.put("docs", {**document, "leaseToken": "another"})
            if error is not None:
                raise error

    trial = trial_of(handle, lease=MINUTE)
    await trial.put("docs", {"_id": "a", "status": "pending"})
    await trial.publish("Made", {"ids": ["a"]})
    await trial.run(at_most=HOUR)
    assert (await state(trial), await effects(trial)) == (("processed", 1), [2])
    assert len(trial.facts.of(LeaseLost)) == 1
    assert await trial.letters("s.failed") == []


async def test_two_events_about_one_document_do_not_overtake_each_other_for_ever() -> None:
    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        work.documents("effects").add({"run": event.event_id})
        await trial.clock.wait(SECOND)

    ran: list[str] = []
    trial = trial_of(handle, dedup="ids")
    await trial.put("docs", {"_id": "a"})
    for one in ("1", "2"):
        await trial.publish("Made", {"ids": ["a"]}, event_id=one)
    await trial.run()
    assert (ran, await effects(trial)) == (["1", "2"], ["2"])
    assert await state(trial) == ("processed", 2)


@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_what_was_not_overtaken_is_finished_without_the_rest(
    error: Exception | None,
) -> None:
    told: list[tuple[str, ...]] = []

    async def handle(event: Any, work: Any) -> None:
        told.append(work.document_ids)
        for one in work.document_ids:
            work.documents("effects").add({"run": one})
        await trial.clock.wait(SECOND if len(event.data["ids"]) == 2 else 5 * SECOND)
        if error is not None and len(event.data["ids"]) == 2:
            raise error

    trial = trial_of(handle)
    await trial.put("docs", {"_id": "a"}, {"_id": "b"})
    await trial.publish("Made", {"ids": ["a", "b"]})
    await trial.publish("Made", {"ids": ["a"]})
    await trial.run()
    documents = await by_id(trial)
    assert documents["a"]["status"] == "processed"
    assert documents["b"]["status"] == ("processed" if error is None else "failed")
    assert told == [("a", "b"), ("a",), *([("b",)] if error is None else [])]
    assert sorted(await effects(trial)) == (["a", "b"] if error is None else ["a"])
    assert len(await trial.letters("s.failed")) == (error is not None)


async def test_a_document_that_is_replaced_in_hand_is_worked_on_again() -> None:
    seen: list[str] = []

    async def handle(event: Any, work: Any) -> None:
        (document,) = await work.documents("docs").require(work.document_ids)
        seen.append(document["text"])
        await trial.clock.wait(MINUTE)

    trial = trial_of(handle)
    await trial.put("docs", {"_id": "a", "text": "old"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running():
        await trial.clock.wait(MINUTE / 2)
        await trial.put("docs", {"_id": "a", "text": "new"})
        await trial.clock.wait(2 * MINUTE)
    assert seen == ["old", "new"]
    (document,) = await trial.documents("docs")
    assert (document["status"], document["text"]) == ("processed", "new")


@LEASES
async def test_a_handler_that_replaces_its_own_document_ends_as_a_dead_letter(
    lease: timedelta | None,
) -> None:
    ran: list[datetime] = []

    async def handle(event: Any, work: Any) -> None:
        ran.append(trial.clock.now())
        assert len(ran) < 9, "it spins"
        await trial.put("docs", {"_id": "a", "text": "new"})  # with a client of its own
        work.documents("effects").add({"run": len(ran)})

    policy = RetryPolicy(max_attempts=3, backoff=STEADY)
    trial = trial_of(handle, transient=policy, lease=lease)
    await trial.put("docs", {"_id": "a"}, {"_id": "b"})
    await trial.publish("Made", {"ids": ["a", "b"]})
    await trial.run(at_most=HOUR)
    assert len(ran) == 3
    assert ran[0] < ran[1] < ran[2], "it waits in between"
    (letter,) = await trial.letters("s.failed")
    assert letter.error_type == "DocumentReplacedError"
    assert "docs/a" in letter.last_error
    documents = await by_id(trial)
    assert "status" not in documents["a"]
    assert (documents["b"]["status"], documents["b"].get("leaseToken")) == ("failed", None)
    assert await effects(trial) == []


@LEASES
async def test_a_document_that_is_gone_does_not_keep_others_from_having_failed(
    lease: timedelta | None,
) -> None:
    async def handle(event: Any, work: Any) -> None:
        for one in "bd":
            del trial.state.documents["docs"][one]
        raise ValueError("it cannot be read")

    trial = trial_of(handle, lease=lease)
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


@LEASES
async def test_the_retries_of_two_events_about_one_document_count_nothing(
    lease: timedelta | None,
) -> None:
    ran: list[str] = []

    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        raise OSError("no space left")

    policy = RetryPolicy(max_attempts=4, backoff=STEADY)
    trial = trial_of(handle, transient=policy, max_attempts=3, lease=lease)
    await trial.put("docs", {"_id": "a"})
    async with trial.running():
        for one in "AB":
            await trial.publish("Made", {"ids": ["a"]}, event_id=one)
            await trial.clock.wait(5 * SECOND)
        await trial.clock.wait(5 * MINUTE)
    assert ran == list("AB" * 4)
    assert len(await trial.letters("s.failed")) == 2
    assert await state(trial) == ("failed", 2)


# Waiting for a retry


SLOW = RetryPolicy(
    max_attempts=3,
    backoff=Exponential(base=20 * MINUTE, cap=20 * MINUTE, jitter=NoJitter()),
    ttl=5 * HOUR,
)


async def test_a_document_whose_event_waits_for_its_retry_is_not_swept() -> None:
    ran: list[int] = []

    async def handle(event: Any, work: Any) -> None:
        ran.append(work.attempt)
        if work.attempt == 1:
            raise OSError("no space left")

    trial = trial_of(handle, transient=SLOW, lease=MINUTE)
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
    assert (ran, await state(trial)) == ([1, 2], ("processed", 1))


async def test_a_retry_that_never_comes_is_swept_when_it_is_overdue() -> None:
    async def handle(event: Any, work: Any) -> None:
        raise OSError("no space left")

    trial = trial_of(handle, transient=SLOW, lease=MINUTE)
    await trial.put("docs", {"_id": "a"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running():
        await trial.clock.wait(MINUTE)
    trial.state.items.clear()  # the bus has lost everything
    for wait, requeued in ((30 * MINUTE, 0), (10 * MINUTE, 1)):
        await trial.clock.wait(wait)
        assert (await trial.sweep()).collections[0].requeued == requeued


async def test_what_a_stopped_worker_hands_back_is_free_at_once() -> None:
    ran: list[datetime] = []

    async def handle(event: Any, work: Any) -> None:
        ran.append(trial.clock.now())
        if len(ran) == 1:
            await trial.clock.wait(HOUR)

    trial = trial_of(handle, lease=HOUR, settings=WorkerSettings(grace=SECOND))
    await trial.put("docs", {"_id": "a"})
    await trial.publish("Made", {"ids": ["a"]})
    async with trial.running():
        await trial.clock.wait(MINUTE)
    await trial.run()
    assert ran[1] - ran[0] < 2 * MINUTE
    assert await state(trial) == ("processed", 1)


# How many attempts


async def test_no_event_is_run_for_a_document_that_has_had_all_its_attempts() -> None:
    ran: list[str] = []

    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        if len(ran) <= 3:
            raise RuntimeError("it cannot be read")

    trial = trial_of(handle, dedup="ids", transient=ONCE, max_attempts=3)
    await trial.put("docs", {"_id": "a"})
    for number in range(5):
        await trial.publish("Made", {"ids": ["a"]}, event_id=f"{number}")
        await trial.run()
    assert (ran, await state(trial)) == (["0", "1", "2"], ("failed", 3))
    assert [each.why for each in trial.facts.of(DuplicatesRecognised)] == ["superseded"] * 2
    await trial.sweep()
    assert (await state(trial))[0] == "failed_max_retries"
    # A person decides: then the same work, sent anew, is no duplicate of what was never done.
    await trial.put("docs", {"_id": "a"})
    await trial.publish("Made", {"ids": ["a"]}, event_id="anew")
    await trial.run()
    assert ran == ["0", "1", "2", "anew"]


async def test_the_number_of_sweepers_rules_what_they_send_and_the_lifecycle_all_else() -> None:
    ran: list[str] = []

    async def handle(event: Any, work: Any) -> None:
        ran.append(event.event_id)
        raise RuntimeError("it cannot be read")

    trial = trial_of(handle, transient=ONCE, max_attempts=2)
    await trial.put("docs", {"_id": "a"})
    for number in range(3):
        await trial.publish("Made", {"ids": ["a"]}, event_id=f"{number}")
        await trial.run()
    assert ran == ["0", "1"]
    for _ in range(3):
        await trial.clock.wait(2 * HOUR)
        await trial.sweep(SweepSettings(max_attempts={"DOCS": 4}))
        await trial.run()
    assert (len(ran), await state(trial)) == (4, ("failed_max_retries", 4))
