"""What a handler reads, writes and publishes: all of it takes effect once, or nothing does."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from headway import BlockingWork, Event, Service, Work
from headway.facts import (
    DocumentsSkipped,
    DuplicatesRecognised,
    EventRecovered,
    EventRetryScheduled,
    Processed,
)
from headway.testing.chance import Fixed
from headway.testing.trial import Trial
from tests.behaviour.scenes import assert_all_is_accounted_for, reasons

LONG = timedelta(minutes=5)


def trial_with(handler: Callable[..., Any], **settings: Any) -> Trial:
    orders = Service("orders")
    orders.on("OrderPlaced", **settings)(handler)
    return Trial(orders, chance=Fixed(0.5))


async def change(trial: Trial, collection: str, document_id: str, **fields: Any) -> None:
    """Change a document behind a handler's back."""
    stored = trial.state.documents.setdefault(collection, {})
    before = msgspec.json.decode(stored[document_id]) if document_id in stored else {}
    stored[document_id] = msgspec.json.encode({"_id": document_id, **before, **fields})


# Reading


async def test_require_names_every_missing_document_and_not_only_the_first() -> None:
    async def handle(event: Event, work: Work) -> None:
        await work.documents("messages").require(["a", "b", "c", "d", "e"])

    trial = trial_with(handle)
    for each in ("a", "c", "d"):
        await change(trial, "messages", each)
    await trial.publish("OrderPlaced")
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert letter.last_error == "DocumentNotFoundError: not found in messages: b, e"


async def test_three_of_five_visible_documents_are_not_enough_and_all_five_are_found_later() -> (
    None
):
    found: list[list[str]] = []

    async def handle(event: Event, work: Work) -> None:
        if work.attempt == 2:
            for each in ("d", "e"):
                await change(trial, "messages", each)
        documents = await work.documents("messages").require(list("abcde"))
        found.append([each["_id"] for each in documents])

    trial = trial_with(handle)
    for each in "abc":
        await change(trial, "messages", each)
    await trial.publish("OrderPlaced")
    await trial.run()
    assert found == [list("abcde")]
    assert await reasons(trial) == []


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

    trial = trial_with(handle)
    await change(trial, "orders", "old", state="closed")
    await trial.publish("OrderPlaced")
    await trial.run()
    assert seen == [
        {"_id": "new", "state": "open"},
        [{"_id": "old", "state": "open"}, {"_id": "added", "state": "open"}],
        {"_id": "count", "n": 3},
        ["added", "new", "old"],
    ]


async def test_finding_a_few_looks_past_those_that_the_handler_has_changed() -> None:
    found: list[str] = []

    async def handle(event: Event, work: Work) -> None:
        orders = work.documents("orders")
        orders.update("a", {"state": "done"})
        found.extend(each["_id"] for each in await orders.find({"state": "open"}, limit=1))

    trial = trial_with(handle)
    for each in "abc":
        await change(trial, "orders", each, state="open")
    await trial.publish("OrderPlaced")
    await trial.run()
    assert found == ["b"]


async def test_what_was_read_can_be_changed_without_changing_what_is_stored() -> None:
    async def handle(event: Event, work: Work) -> None:
        (document,) = await work.documents("orders").require("a")
        document["lines"].append("forged")

    trial = trial_with(handle)
    await change(trial, "orders", "a", lines=["one"])
    await trial.publish("OrderPlaced")
    await trial.run()
    assert await trial.documents("orders") == [{"_id": "a", "lines": ["one"]}]


async def test_what_was_written_is_what_it_was_when_it_was_written() -> None:
    async def handle(event: Event, work: Work) -> None:
        document = {"_id": "a", "lines": ["one"]}
        work.documents("orders").insert_new(document)
        document["lines"] = ["changed afterwards"]

    trial = trial_with(handle)
    await trial.publish("OrderPlaced")
    await trial.run()
    assert await trial.documents("orders") == [{"_id": "a", "lines": ["one"]}]


async def test_a_plain_function_reads_in_its_own_words_and_holds_up_nobody() -> None:
    seen: list[Any] = []
    loop_thread = threading.get_ident()

    def handle(event: Event, work: BlockingWork) -> None:
        orders = work.documents("orders")
        orders.insert_new({"_id": "b"})
        seen.append(orders.get("a"))
        seen.append([each["_id"] for each in orders.require(["a", "b"])])
        seen.append([each["_id"] for each in orders.find({})])
        seen.append(threading.get_ident() != loop_thread)
        work.publish("OrderShipped")

    trial = trial_with(handle)
    await change(trial, "orders", "a")
    await trial.publish("OrderPlaced")
    await trial.run()
    assert seen == [{"_id": "a"}, ["a", "b"], ["a", "b"], True]


async def test_a_plain_function_misses_documents_as_a_coroutine_does() -> None:
    def handle(event: Event, work: BlockingWork) -> None:
        work.documents("orders").require(["x", "y"])

    trial = trial_with(handle)
    await trial.publish("OrderPlaced")
    await trial.run(at_most=LONG)
    (letter,) = await trial.letters("orders.failed")
    assert letter.last_error == "DocumentNotFoundError: not found in orders: x, y"
    assert len(letter.attempts) == 9


# Writing


async def test_documents_that_are_there_are_skipped_and_counted() -> None:
    async def handle(event: Event, work: Work) -> None:
        work.documents("chunks").insert_new([{"_id": each, "by": "us"} for each in "abc"])

    trial = trial_with(handle)
    await change(trial, "chunks", "b", by="them")
    await trial.publish("OrderPlaced")
    await trial.run()
    assert [each["by"] for each in await trial.documents("chunks")] == ["us", "them", "us"]
    assert [fact.count for fact in trial.facts.of(DocumentsSkipped)] == [1]


async def test_a_document_without_an_id_for_insert_new_is_refused_with_a_reason() -> None:
    async def handle(event: Event, work: Work) -> None:
        work.documents("chunks").insert_new({"text": "x"})

    trial = trial_with(handle)
    await trial.publish("OrderPlaced")
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert "'_id'" in letter.last_error


async def test_a_lost_condition_runs_the_handler_again_at_once_in_the_same_attempt() -> None:
    attempts: list[int] = []

    async def handle(event: Event, work: Work) -> None:
        attempts.append(work.attempt)
        (account,) = await work.documents("accounts").require("a")
        if len(attempts) < 3:
            await change(trial, "accounts", "a", balance=account["balance"] + 1)
        changed = {"balance": account["balance"] + 10}
        work.documents("accounts").update("a", changed, expect={"balance": account["balance"]})

    trial = trial_with(handle)
    await change(trial, "accounts", "a", balance=0)
    await trial.publish("OrderPlaced")
    start = trial.clock.now()
    await trial.run()
    assert attempts == [1, 1, 1]
    assert await trial.documents("accounts") == [{"_id": "a", "balance": 12}]
    assert trial.clock.now() - start < timedelta(seconds=2)
    assert trial.facts.of(EventRetryScheduled) == []
    assert trial.facts.of(EventRecovered) == []


async def test_after_five_lost_runs_the_attempt_has_failed() -> None:
    attempts: list[int] = []

    async def handle(event: Event, work: Work) -> None:
        attempts.append(work.attempt)
        work.documents("accounts").update("a", {"n": 1}, expect={"n": "never"})

    trial = trial_with(handle)
    await change(trial, "accounts", "a", n=0)
    await trial.publish("OrderPlaced")
    await trial.run()
    assert attempts == [1] * 5 + [2] * 5 + [3] * 5
    (letter,) = await trial.letters("orders.failed")
    assert (letter.abandoned_reason, letter.error_type) == (
        "max_attempts_exceeded",
        "ConditionLostError",
    )


async def test_many_events_whose_conditions_never_hold_are_letters_and_no_outage() -> None:
    async def handle(event: Event, work: Work) -> None:
        work.documents("accounts").update("a", {"n": 1}, expect={"n": "never"})

    trial = trial_with(handle)
    await change(trial, "accounts", "a", n=0)
    for _ in range(8):
        await trial.publish("OrderPlaced")
    await trial.run(at_most=LONG)
    assert await reasons(trial) == ["max_attempts_exceeded"] * 8


async def test_an_update_of_a_document_that_is_not_there_waits_for_it() -> None:
    async def handle(event: Event, work: Work) -> None:
        if work.attempt == 3:
            await change(trial, "accounts", "a")
        work.documents("accounts").update("a", {"n": 1})

    trial = trial_with(handle)
    await trial.publish("OrderPlaced")
    await trial.run()
    assert await trial.documents("accounts") == [{"_id": "a", "n": 1}]
    assert [fact.retries for fact in trial.facts.of(EventRecovered)] == [2]


async def test_nothing_of_a_failed_attempt_takes_effect() -> None:
    async def handle(event: Event, work: Work) -> None:
        work.documents("log").add({"attempt": work.attempt})
        work.documents("counts").increment("all", "n")
        work.publish("OrderShipped", {"attempt": work.attempt})
        work.transaction(lambda tables: tables.update(attempt=work.attempt))
        if work.attempt < 3:
            raise ConnectionError

    trial = trial_with(handle)
    await trial.publish("OrderPlaced")
    await trial.run()
    assert [each["attempt"] for each in await trial.documents("log")] == [3]
    assert await trial.documents("counts") == [{"_id": "all", "n": 1}]
    assert trial.state.tables == {"attempt": 3}


async def test_one_refused_write_takes_the_whole_unit_with_it() -> None:
    async def handle(event: Event, work: Work) -> None:
        work.documents("log").add({"attempt": work.attempt})
        work.publish("OrderShipped")
        work.documents("orders").update("missing", {"n": 1})

    shipping = Service("shipping")
    shipping.on("OrderShipped")(handle)
    orders = Service("orders")
    orders.on("OrderPlaced")(handle)
    trial = Trial(orders, shipping)
    await trial.publish("OrderPlaced")
    await trial.run()
    assert await trial.documents("log") == []
    assert await reasons(trial) == ["max_attempts_exceeded"]
    assert await trial.letters("shipping.failed") == []


async def test_two_units_in_one_commit_do_not_disturb_each_other() -> None:
    async def handle(event: Event, work: Work) -> None:
        work.documents("log").add({"event": event.event_id})
        if event.event_id == "bad":
            work.transaction(lambda tables: tables["missing"])

    trial = trial_with(handle)
    for event_id in ("a", "bad", "b"):
        await trial.publish("OrderPlaced", event_id=event_id)
    await trial.run()
    assert sorted(each["event"] for each in await trial.documents("log")) == ["a", "b"]
    assert await reasons(trial) == ["non_retryable"]


# Transactions


async def test_a_transaction_body_runs_inside_the_commit_after_the_handler() -> None:
    order: list[str] = []

    def body(tables: dict[str, Any]) -> None:
        order.append("body")
        tables["row"] = 1

    async def handle(event: Event, work: Work) -> None:
        work.transaction(body)
        order.append("handler over")

    trial = trial_with(handle)
    await trial.publish("OrderPlaced")
    await trial.run()
    assert order == ["handler over", "body"]
    assert trial.state.tables == {"row": 1}


async def test_a_transaction_body_that_raises_fails_the_attempt_and_leaves_no_trace() -> None:
    failures = [ConnectionError("gone")]

    def second(tables: dict[str, Any]) -> None:
        if failures:
            raise failures.pop()

    async def handle(event: Event, work: Work) -> None:
        work.documents("log").add({"attempt": work.attempt})
        work.transaction(lambda tables: tables.update(n=tables.get("n", 0) + 1))
        work.transaction(second)

    trial = trial_with(handle)
    await trial.publish("OrderPlaced")
    await trial.run()
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

    trial = trial_with(handle)
    await trial.publish("OrderPlaced", event_id="e1")
    await trial.run()
    assert len(ids) == 3
    assert ids[0] == ids[1] == ids[2]
    assert len(set(ids[0])) == 2


async def test_published_events_reach_their_handlers_with_their_data() -> None:
    seen: list[tuple[str, Any]] = []
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def placed(event: Event, work: Work) -> None:
        work.publish("OrderShipped", {"order": event.data["order"]}, event_id="mine")

    @orders.on("OrderShipped")
    async def shipped(event: Event, work: Work) -> None:
        seen.append((event.event_id, event.data))

    trial = Trial(orders)
    await trial.publish("OrderPlaced", {"order": "a"})
    await trial.run()
    assert seen == [("mine", {"order": "a"})]
    assert sum(len(fact.seconds) for fact in trial.facts.of(Processed)) == 2


async def test_data_that_is_no_json_fails_where_it_is_published() -> None:
    async def handle(event: Event, work: Work) -> None:
        work.publish("OrderShipped", {"order": object()})

    trial = trial_with(handle)
    await trial.publish("OrderPlaced")
    await trial.run()
    assert await reasons(trial) == ["non_retryable"]


# The documents that an event is about


ABOUT = ("messages", "ids")


async def test_an_attempt_of_a_document_is_counted_once_for_each_operation() -> None:
    async def handle(event: Event, work: Work) -> None:
        if work.attempt < 3:
            raise ConnectionError

    trial = trial_with(handle, documents=ABOUT)
    await change(trial, "messages", "a", status="pending")
    await trial.publish("OrderPlaced", {"ids": ["a"]}, event_id="e1")
    await trial.run()
    (document,) = await trial.documents("messages")
    assert (document["attemptCount"], document["lastOperation"]) == (1, "e1")
    assert document["status"] == "processed"


async def test_another_operation_counts_another_attempt() -> None:
    async def handle(event: Event, work: Work) -> None:
        if event.event_id == "e1":
            raise ValueError

    trial = trial_with(handle, documents=ABOUT)
    await change(trial, "messages", "a")
    for event_id in ("e1", "e2"):
        await trial.publish("OrderPlaced", {"ids": ["a"]}, event_id=event_id)
        await trial.run()
    (document,) = await trial.documents("messages")
    assert (document["attemptCount"], document["status"]) == (2, "processed")


async def test_every_attempt_of_one_operation_refreshes_the_time_of_the_last_one() -> None:
    async def handle(event: Event, work: Work) -> None:
        if work.attempt < 3:
            raise ConnectionError

    trial = trial_with(handle, documents=ABOUT)
    await change(trial, "messages", "a")
    await trial.publish("OrderPlaced", {"ids": ["a"]})
    await trial.run()
    (document,) = await trial.documents("messages")
    assert document["lastAttemptTime"] == "2000-01-01T00:00:15Z"


async def test_a_document_whose_event_ended_as_a_letter_has_failed() -> None:
    async def handle(event: Event, work: Work) -> None:
        raise ValueError

    trial = trial_with(handle, documents=ABOUT)
    await change(trial, "messages", "a", status="pending")
    await trial.publish("OrderPlaced", {"ids": ["a", "not there"]})
    await trial.run()
    (document,) = await trial.documents("messages")
    assert (document["status"], document["attemptCount"]) == ("failed", 1)
    assert await reasons(trial) == ["non_retryable"]


async def test_a_document_that_goes_away_while_its_event_fails_is_no_trouble() -> None:
    async def handle(event: Event, work: Work) -> None:
        trial.state.documents["messages"].clear()
        raise ValueError

    trial = trial_with(handle, documents=ABOUT)
    await change(trial, "messages", "a")
    await trial.publish("OrderPlaced", {"ids": ["a"]})
    await trial.run()
    assert await reasons(trial) == ["non_retryable"]
    await assert_all_is_accounted_for(trial)


async def test_an_event_whose_documents_are_processed_is_superseded_and_not_run() -> None:
    runs: list[str] = []

    async def handle(event: Event, work: Work) -> None:
        runs.append(event.event_id)

    trial = trial_with(handle, documents=ABOUT)
    for each in "ab":
        await change(trial, "messages", each)
    await trial.publish("OrderPlaced", {"ids": ["a", "b"]}, event_id="e1")
    await trial.run()
    await trial.publish("OrderPlaced", {"ids": ["b"]}, event_id="e2")
    await trial.run()
    assert runs == ["e1"]
    assert [fact.why for fact in trial.facts.of(DuplicatesRecognised)] == ["superseded"]
    documents = await trial.documents("messages")
    assert [each["attemptCount"] for each in documents] == [1, 1]
    await assert_all_is_accounted_for(trial)


async def test_an_event_of_which_one_document_is_not_processed_is_run() -> None:
    runs: list[str] = []

    async def handle(event: Event, work: Work) -> None:
        runs.append(event.event_id)

    trial = trial_with(handle, documents=ABOUT)
    await change(trial, "messages", "a", status="processed")
    await change(trial, "messages", "b", status="failed")
    await trial.publish("OrderPlaced", {"ids": ["a", "b"]}, event_id="e1")
    await trial.run()
    assert runs == ["e1"]
