"""What a handler reads, writes and publishes: all of it takes effect once, or nothing does."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headway import Event, Service, Work
from headway.facts import (
    DuplicatesRecognised,
    EventRecovered,
    EventRetryScheduled,
)
from headway.testing.trial import Trial
from tests.behaviour.scenes import (
    assert_all_is_accounted_for,
    only_letter,
    ran,
    reasons,
    trial_of,
)


def change(trial: Trial, collection: str, document_id: str, **fields: Any) -> None:
    """Change a document behind a handler's back."""
    stored = trial.state.documents.setdefault(collection, {})
    before = msgspec.json.decode(stored[document_id]) if document_id in stored else {}
    stored[document_id] = msgspec.json.encode({"_id": document_id, **before, **fields})


# Reading


async def test_require_names_every_missing_document_and_waits_for_all_of_them() -> None:
    found: list[list[str]] = []

    async def handle(event: Event, work: Work) -> None:
        if work.attempt == 2 and event.data["appear"]:
            await trial.put("messages", {"_id": "b"}, {"_id": "e"})
        documents = await work.documents("messages").require(list("abcde"))
        found.append([each["_id"] for each in documents])

    for appear in (False, True):
        trial = trial_of(handle)
        await trial.put("messages", {"_id": "a"}, {"_id": "c"}, {"_id": "d"})
        await trial.publish("OrderPlaced", {"appear": appear})
        await trial.run()
        if not appear:
            letter = await only_letter(trial)
            assert letter.last_error == "DocumentNotFoundError: not found in messages: b, e"
            assert len(letter.attempts) == 9
    assert found == [list("abcde")]


async def test_reads_see_what_the_handler_has_written_before() -> None:
    seen: list[Any] = []

    async def handle(event: Event, work: Work) -> None:
        orders = work.documents("orders")
        orders.insert_new({"_id": "new", "state": "open"})
        orders.update("old", {"state": "open"})
        orders.increment("count", "n", 2)
        orders.increment("count", "n")
        orders.insert_new({"_id": "added", "state": "open"})
        seen.append(await orders.get("new"))
        seen.append(await orders.require(["old", "added"]))
        seen.append(await orders.get("count"))
        seen.append([each["_id"] for each in await orders.find({"state": "open"})])
        orders.update("added", {"state": "done"})
        seen.append([each["_id"] for each in await orders.find({"state": "open"}, limit=1)])

    trial = trial_of(handle)
    await trial.put("orders", {"_id": "old", "state": "closed"})
    await trial.publish("OrderPlaced")
    await trial.run()
    assert seen == [
        {"_id": "new", "state": "open"},
        [{"_id": "old", "state": "open"}, {"_id": "added", "state": "open"}],
        {"_id": "count", "n": 3},
        ["added", "new", "old"],
        ["new"],
    ]


async def test_what_was_read_or_written_can_be_changed_without_changing_what_is_stored() -> None:
    async def handle(event: Event, work: Work) -> None:
        (document,) = await work.documents("orders").require("a")
        document["lines"].append("forged")
        new = {"_id": "b", "lines": ["one"]}
        work.documents("orders").insert_new(new)
        new["lines"] = ["changed afterwards"]

    trial = trial_of(handle)
    await trial.put("orders", {"_id": "a", "lines": ["one"]})
    await trial.publish("OrderPlaced")
    await trial.run()
    assert [each["lines"] for each in await trial.documents("orders")] == [["one"], ["one"]]


# Writing


async def test_a_lost_condition_runs_the_handler_again_at_once_in_the_same_attempt() -> None:
    attempts: list[int] = []

    async def handle(event: Event, work: Work) -> None:
        attempts.append(work.attempt)
        (account,) = await work.documents("accounts").require("a")
        if len(attempts) < 3:
            change(trial, "accounts", "a", balance=account["balance"] + 1)
        changed = {"balance": account["balance"] + 10}
        work.documents("accounts").update("a", changed, expect={"balance": account["balance"]})

    trial = trial_of(handle)
    await trial.put("accounts", {"_id": "a", "balance": 0})
    await trial.publish("OrderPlaced")
    start = trial.clock.now()
    await trial.run()
    assert attempts == [1, 1, 1]
    assert await trial.documents("accounts") == [{"_id": "a", "balance": 12}]
    assert trial.clock.now() - start < timedelta(seconds=2)
    assert trial.facts.of(EventRetryScheduled) == []
    assert trial.facts.of(EventRecovered) == []


@pytest.mark.parametrize("read", ["get", "require", "find"])
async def test_an_update_of_what_was_read_and_changed_since_runs_the_handler_again(
    read: str,
) -> None:
    runs: list[int] = []

    async def handle(event: Event, work: Work) -> None:
        runs.append(work.attempt)
        accounts = work.documents("accounts")
        found: Any = await getattr(accounts, read)({"_id": "a"} if read == "find" else "a")
        account = found if read == "get" else found[0]
        if len(runs) == 1:
            change(trial, "accounts", "a", balance=100, entries=["theirs"])
        account["entries"].append("ours")
        accounts.update("a", {"balance": account["balance"] + 1})
        accounts.update("a", {"entries": account["entries"]})
        accounts.increment("a", "balance")
        accounts.update("a", {"balance": account["balance"] + 10})

    trial = trial_of(handle)
    await trial.put("accounts", {"_id": "a", "balance": 0, "entries": []})
    await trial.publish("OrderPlaced")
    await trial.run()
    assert await trial.documents("accounts") == [
        {"_id": "a", "balance": 110, "entries": ["theirs", "ours"]}
    ]
    assert runs == [1, 1]


@pytest.mark.parametrize("how", ["not read", "another field", "expect={}"])
async def test_other_updates_are_written_whatever_the_document_holds(how: str) -> None:
    runs: list[int] = []

    async def handle(event: Event, work: Work) -> None:
        runs.append(work.attempt)
        accounts = work.documents("accounts")
        if how != "not read":
            await accounts.require("a")
        change(trial, "accounts", "a", balance=100)
        if how == "another field":
            accounts.update("a", {"owner": "us"})
        else:
            accounts.update("a", {"owner": "us", "balance": 1}, expect={} if "=" in how else None)

    trial = trial_of(handle)
    await trial.put("accounts", {"_id": "a", "balance": 0})
    await trial.publish("OrderPlaced")
    await trial.run()
    (account,) = await trial.documents("accounts")
    assert (runs, account["owner"]) == ([1], "us")
    assert account["balance"] == (100 if how == "another field" else 1)


async def test_after_five_lost_runs_the_attempt_has_failed() -> None:
    attempts: dict[str, list[int]] = {}

    async def handle(event: Event, work: Work) -> None:
        attempts.setdefault(event.event_id, []).append(work.attempt)
        work.documents("accounts").update("a", {"n": 1}, expect={"n": "never"})

    trial = trial_of(handle)
    await trial.put("accounts", {"_id": "a", "n": 0})
    for _ in range(8):  # so many are no outage either
        await trial.publish("OrderPlaced")
    await trial.run()
    assert list(attempts.values()) == [[1] * 5 + [2] * 5 + [3] * 5] * 8
    letters = await trial.letters("orders.failed")
    ends = [(letter.abandoned_reason, letter.error_type) for letter in letters]
    assert ends == [("max_attempts_exceeded", "ConditionLostError")] * 8


async def test_nothing_of_a_failed_attempt_takes_effect() -> None:
    async def handle(event: Event, work: Work) -> None:
        work.documents("log").add({"attempt": work.attempt})
        work.documents("counts").increment("all", "n")
        work.publish("OrderShipped", {"attempt": work.attempt})
        work.transaction(lambda tables: tables.update(attempt=work.attempt))
        if work.attempt < 3:
            raise ConnectionError

    trial = await ran(handle)
    assert [each["attempt"] for each in await trial.documents("log")] == [3]
    assert await trial.documents("counts") == [{"_id": "all", "n": 1}]
    assert trial.state.tables == {"attempt": 3}


async def test_one_refused_write_takes_the_whole_unit_with_it_and_no_other() -> None:
    shipped: list[str] = []
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        work.documents("log").add({"event": event.event_id})
        work.publish("OrderShipped", {"event": event.event_id})
        if event.event_id == "missing":
            work.documents("orders").update("missing", {"n": 1})
        if event.event_id == "raises":
            work.transaction(lambda tables: tables["missing"])

    @orders.on("OrderShipped")
    async def ship(event: Event, work: Work) -> None:
        shipped.append(event.data["event"])

    trial = Trial(orders)
    for event_id in ("a", "missing", "raises", "b"):
        await trial.publish("OrderPlaced", event_id=event_id)
    await trial.run()
    assert sorted(each["event"] for each in await trial.documents("log")) == ["a", "b"]
    assert sorted(shipped) == ["a", "b"]
    assert sorted(await reasons(trial)) == ["max_attempts_exceeded", "non_retryable"]


# Transactions


async def test_transaction_callbacks_run_inside_the_commit_after_the_handler_all_or_none() -> None:
    order: list[str] = []
    failures = [ConnectionError("gone")]

    def first(tables: dict[str, Any]) -> None:
        order.append("callback")
        tables["n"] = tables.get("n", 0) + 1

    def second(tables: dict[str, Any]) -> None:
        if failures:
            raise failures.pop()

    async def handle(event: Event, work: Work) -> None:
        work.documents("log").add({"attempt": work.attempt})
        work.transaction(first)
        work.transaction(second)
        order.append("handler over")

    trial = await ran(handle)
    assert order == ["handler over", "callback"] * 2
    assert trial.state.tables == {"n": 1}
    assert [each["attempt"] for each in await trial.documents("log")] == [2]


# Publishing


async def test_published_events_have_the_same_ids_in_every_attempt() -> None:
    ids: list[list[str]] = []

    async def handle(event: Event, work: Work) -> None:
        work.publish("OrderShipped", {"n": 1})
        work.publish("OrderShipped", {"n": 2})
        ids.append([message.travel.operation for message in work._buffer.outgoing])
        if work.attempt < 3:
            raise ConnectionError

    await ran(handle)
    assert len(ids) == 3
    assert ids[0] == ids[1] == ids[2]
    assert len(set(ids[0])) == 2


# The documents that an event is about


def about(handler: Any) -> Trial:
    return trial_of(handler, documents=("messages", "ids"))


async def test_an_attempt_of_a_document_is_counted_once_for_each_operation() -> None:
    async def handle(event: Event, work: Work) -> None:
        if work.attempt < 3:
            raise ConnectionError
        if event.event_id == "e1":
            raise ValueError

    trial = about(handle)
    await trial.put("messages", {"_id": "a", "status": "pending"})
    ends = {"e1": (1, "failed", "00:00:15"), "e2": (2, "processed", "00:00:30")}
    for event_id, (count, status, at) in ends.items():
        await trial.publish("OrderPlaced", {"ids": ["a", "not there"]}, event_id=event_id)
        await trial.run()
        (document,) = await trial.documents("messages")
        assert (document["attemptCount"], document["lastOperation"]) == (count, event_id)
        assert document["status"] == status
        assert document["lastAttemptTime"].startswith(f"2000-01-01T{at}")
    assert await reasons(trial) == ["non_retryable"]


async def test_an_event_whose_documents_are_all_processed_is_superseded_and_not_run() -> None:
    runs: list[str] = []

    async def handle(event: Event, work: Work) -> None:
        runs.append(event.event_id)

    trial = about(handle)
    await trial.put("messages", {"_id": "a"}, {"_id": "b"}, {"_id": "c", "status": "failed"})
    for event_id, ids in {"e1": ["a", "b"], "e2": ["b"], "e3": ["b", "c"]}.items():
        await trial.publish("OrderPlaced", {"ids": ids}, event_id=event_id)
        await trial.run()
    assert runs == ["e1", "e3"]
    assert [fact.why for fact in trial.facts.of(DuplicatesRecognised)] == ["superseded"]
    counts = {each["_id"]: each["attemptCount"] for each in await trial.documents("messages")}
    assert (counts["a"], counts["c"]) == (1, 1)
    await assert_all_is_accounted_for(trial)
