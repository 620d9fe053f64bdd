from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import Lifecycle
from headway.core.beginning import (
    begun,
    begun_together,
    is_sweep_of,
    lease_runs,
    sweep_generation,
    waits_until,
)
from headway.core.document import MOST, WAITING
from headway.core.event import is_first_run
from headway.core.letter import requeued_letter
from headway.testing.ports import (
    FIRST_GENERATION,
    Beginning,
    Document,
    How,
    State,
    instant,
    sweep_operation,
    sweep_run,
)
from tests.unit.documents import DAY, DOCUMENTS, HOUR, MINUTE, NOW, ago, modest

PLAIN = Lifecycle("docs")
PATIENT = Lifecycle("docs", max_attempts=9)
LEASED = Lifecycle("docs", lease=HOUR)
FIRST = Beginning(lifecycle=PLAIN, ids=("1",), operation="first", now=NOW)
OURS = replace(FIRST, lifecycle=LEASED, token="ours")


def in_utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC)


def test_the_operation_of_a_sweep_names_its_document_its_generation_and_its_moment() -> None:
    before, after = (sweep_operation("docs", "1", 1, at) for at in (NOW, NOW + HOUR))
    assert before != after
    assert sweep_run(before) != sweep_run(after)
    assert sweep_run("order-17") == FIRST_GENERATION
    assert sweep_run("sweep-2:docs:1") == "s2"
    at = datetime(2026, 3, 1, 13, 0, 5, 4_999, tzinfo=timezone(HOUR))
    assert sweep_operation("docs", "käse", 3, at) == "sweep-3@20260301T120005.004Z:docs:käse"
    long = sweep_operation("docs", "x" * 200, 3, NOW)
    assert len(long) < 100
    assert long != sweep_operation("docs", "x" * 201, 3, NOW)
    assert sweep_generation(long) == 3


@settings(modest, max_examples=40)
@given(
    st.text(min_size=1, max_size=40),
    st.text(max_size=200),
    st.integers(0, MOST),
    st.none() | st.datetimes().map(in_utc),
)
def test_the_generation_of_an_operation_is_read_back(
    collection: str, one: str, generation: int, at: datetime | None
) -> None:
    operation = sweep_operation(collection, one, generation, at)
    assert sweep_generation(operation) == generation
    assert is_sweep_of(operation, collection, one, generation)
    assert not is_sweep_of(operation, collection, one, generation + 1)
    assert not is_sweep_of(operation, collection, f"{one}1", generation)
    assert len(operation.encode()) <= 190
    travels = sweep_run(operation)
    assert is_first_run(travels)
    assert requeued_letter(travels) is None


@pytest.mark.parametrize("operation", ["order-17", "", "sweep-", "sweep-x:a", "a sweep-2:b", "2"])
def test_other_operations_are_of_no_sweep(operation: str) -> None:
    assert sweep_generation(operation) == 0


def test_a_beginning_counts_once_for_each_operation() -> None:
    document: Document = {"_id": "1", "own": 1}
    for operation, attempts in (("a", 1), ("a", 1), ("b", 2), ("b", 2), ("a", 3)):
        answer = begun(document, replace(FIRST, operation=operation))
        assert answer.how is How.BEGUN
        assert answer.document == {
            "_id": "1", "own": 1, "attemptCount": attempts, "lastOperation": operation,
            "lastAttemptTime": instant(NOW),
        }  # fmt: skip
        document = answer.document


@pytest.mark.parametrize(
    ("document", "operation", "deliberate", "expected"),
    [
        ({"status": "pending"}, "first", False, How.BEGUN),
        ({"status": "failed"}, "first", False, How.BEGUN),
        ({"status": "archived"}, "first", False, How.FOREIGN),
        ({"status": "archived", "sweepGeneration": 2}, "first", True, How.FOREIGN),
        ({"status": ["odd"]}, "first", False, How.FOREIGN),
        ({"status": "pending", "attemptCount": 2}, "first", False, How.BEGUN),
        ({"status": "pending", "attemptCount": 3}, "first", False, How.OVER),
        ({"status": "failed", "attemptCount": 3}, "first", False, How.OVER),
        ({"status": "failed", "attemptCount": 3}, "first", True, How.BEGUN),
        ({"attemptCount": 3, "lastOperation": "first"}, "first", False, How.BEGUN),
        ({"status": "processed"}, "first", False, How.OVER),
        ({"status": "processed"}, "first", True, How.OVER),
        ({"status": "processed", "lastOperation": "first"}, "first", False, How.OVER),
        ({"status": "failed_max_retries"}, "first", False, How.OVER),
        ({"status": "failed_max_retries"}, "first", True, How.BEGUN),
        ({"status": "failed_max_retries", "lastOperation": "first"}, "first", False, How.OVER),
        ({"status": "failed_max_retries", "lastOperation": "first"}, "first", True, How.BEGUN),
        ({"sweepGeneration": 2}, "first", False, How.OVER),
        ({"sweepGeneration": 2}, "first", True, How.BEGUN),
        ({"sweepGeneration": 2}, "sweep-1:docs:1", False, How.OVER),
        ({"sweepGeneration": 2}, "sweep-2:docs:1", False, How.BEGUN),
        ({"sweepGeneration": 2}, "sweep-3:docs:1", False, How.BEGUN),
        ({"sweepGeneration": "two"}, "first", False, How.BEGUN),
    ],
)
def test_what_comes_too_late_is_over(
    document: Document,
    operation: str,
    deliberate: bool,  # noqa: FBT001 (pytest gives it)
    expected: How,
) -> None:
    given_document = {"_id": "1", **document}
    beginning = replace(FIRST, operation=operation, deliberate=deliberate)
    answer = begun(given_document, beginning)
    assert answer.how is expected
    if expected is not How.BEGUN:
        assert answer.document == given_document


def test_an_event_that_comes_again_is_not_counted_again_because_another_began_since() -> None:
    document: Document = {"_id": "1"}
    for operation, again, attempts in (
        ("a", False, 1), ("b", False, 2), ("a", True, 2), ("b", True, 2), ("c", False, 3)
    ):  # fmt: skip
        lifecycle = Lifecycle("docs", max_attempts=4)
        beginning = replace(FIRST, lifecycle=lifecycle, operation=operation, again=again)
        answer = begun(document, beginning)
        assert (answer.how, answer.document["attemptCount"]) == (How.BEGUN, attempts)
        document = answer.document
    spent = {**document, "attemptCount": 4}
    assert begun(spent, replace(FIRST, operation="a", again=True)).how is How.OVER


@pytest.mark.parametrize("count", [{}, {"attemptCount": 0}, {"attemptCount": "many"}])
def test_what_came_back_before_it_had_begun_is_counted_all_the_same(count: Document) -> None:
    answer = begun({"_id": "1", **count}, replace(FIRST, again=True))
    assert answer.document["attemptCount"] == 1


def test_a_sweep_is_counted_when_it_claims_whoever_begins_before_its_event() -> None:
    claimed: Document = {"_id": "1", "attemptCount": 2, "sweepGeneration": 1, "lastOperation": "s"}
    person = begun(claimed, replace(FIRST, operation="a", deliberate=True)).document
    assert person["attemptCount"] == 3
    swept = begun(person, replace(FIRST, lifecycle=PATIENT, operation="sweep-1:docs:1"))
    assert (swept.how, swept.document["attemptCount"]) == (How.BEGUN, 3)
    newer = begun(person, replace(FIRST, lifecycle=PATIENT, operation="sweep-2:docs:1"))
    assert newer.document["attemptCount"] == 4


def test_what_begins_again_is_pending_and_its_claim_ends() -> None:
    for status in ("failed", "failed_max_retries"):
        answer = begun({"_id": "1", "status": status}, replace(FIRST, deliberate=True))
        assert PLAIN.state(answer.document) is State.PENDING
    claim = {"claimToken": "t", "claimUntil": ago(-HOUR), "claimBefore": {"status": None}}
    answer = begun({"_id": "1", **claim}, FIRST)
    assert [answer.document[field] for field in claim] == [None] * 3
    assert "claimToken" not in begun({"_id": "1"}, FIRST).document


@pytest.mark.parametrize(
    ("lease", "expected"),
    [
        ({}, How.BEGUN),
        ({"leaseToken": None, "leaseUntil": ago(-HOUR)}, How.BEGUN),
        ({"leaseToken": "ours", "leaseUntil": ago(-HOUR)}, How.BEGUN),
        ({"leaseToken": "theirs", "leaseUntil": ago(-HOUR)}, How.BUSY),
        ({"leaseToken": "theirs", "leaseUntil": instant(NOW)}, How.BEGUN),
        ({"leaseToken": "theirs", "leaseUntil": ago(HOUR)}, How.BEGUN),
        ({"leaseToken": "theirs", "leaseUntil": "some day"}, How.BEGUN),
        ({"leaseToken": "theirs", "leaseUntil": "2099-01-01T00:00:00Z"}, How.BEGUN),
        ({"leaseToken": WAITING, "leaseUntil": ago(-HOUR)}, How.BEGUN),
        ({"leaseToken": ["odd"], "leaseUntil": ago(-HOUR)}, How.BUSY),
    ],
)
def test_a_lease_keeps_others_out_until_it_ends(lease: dict[str, Any], expected: How) -> None:
    document = {"_id": "1", **lease}
    answer = begun(document, OURS)
    assert answer.how is expected
    if expected is How.BUSY:
        assert answer.document == document
    else:
        assert (answer.document["leaseToken"], answer.document["leaseUntil"]) == (
            "ours", instant(NOW + HOUR)
        )  # fmt: skip
    assert begun(document, FIRST).how is How.BEGUN


def test_an_operation_does_not_wait_for_the_lease_of_a_worker_that_is_gone() -> None:
    left: Document = {
        "_id": "1", "lastOperation": "first", "leaseToken": "dead", "leaseUntil": ago(-HOUR),
        "attemptCount": 1,
    }  # fmt: skip
    assert begun(left, OURS).how is How.BUSY, "whoever has it may live, and commit"
    answer = begun(left, replace(OURS, gone=frozenset({"dead", "another"})))
    assert (answer.how, answer.document["leaseToken"]) == (How.BEGUN, "ours")
    assert answer.document["attemptCount"] == 1
    assert begun(left, replace(OURS, gone=frozenset({"another"}))).how is How.BUSY


@pytest.mark.parametrize("lifecycle", [PLAIN, LEASED], ids=["without a lease", "leased"])
def test_what_was_put_off_waits_no_more_once_it_has_begun(lifecycle: Lifecycle) -> None:
    put_off: Document = {"_id": "1", "status": "pending", **lifecycle.on_wait(NOW + HOUR)}
    answer = begun(put_off, replace(FIRST, lifecycle=lifecycle, token="ours"))
    assert answer.how is How.BEGUN
    done = {**answer.document, **lifecycle.on_success()}
    assert (done["leaseToken"], done["leaseUntil"]) == (None, None)


def test_who_has_to_wait_for_one_document_begins_with_none() -> None:
    found: dict[str, Document] = {
        "free": {"_id": "free"},
        "busy": {"_id": "busy", "leaseToken": "theirs", "leaseUntil": ago(-HOUR)},
        "over": {"_id": "over", "status": "processed"},
        "foreign": {"_id": "foreign", "status": "archived"},
    }
    beginning = replace(OURS, ids=("free", "nobody", "over", "foreign", "busy", "free"))
    answers = begun_together(found, beginning)
    assert {one: answer.how for one, answer in answers.items()} == {
        "free": How.WAITS, "over": How.OVER, "foreign": How.FOREIGN, "busy": How.BUSY
    }  # fmt: skip
    assert {one: answer.document for one, answer in answers.items()} == found
    del found["busy"]
    assert begun_together(found, beginning)["free"].how is How.BEGUN


@pytest.mark.parametrize(
    ("lease", "due", "expected"),
    [
        (MINUTE, timedelta(), 15 * MINUTE),
        (MINUTE, HOUR, HOUR + 15 * MINUTE),
        (MINUTE, -HOUR, 15 * MINUTE),
        (MINUTE, 3 * DAY, DAY),
        (HOUR, HOUR, 2 * HOUR),
        (3 * DAY, HOUR, 3 * DAY),
        (MINUTE, None, DAY),
        (3 * DAY, None, 3 * DAY),
    ],
)
def test_a_document_waits_for_its_event_until_that_is_overdue(
    lease: timedelta, due: timedelta | None, expected: timedelta
) -> None:
    lifecycle = Lifecycle("docs", lease=lease)
    until = waits_until(lifecycle, None if due is None else NOW + due, NOW)
    assert until == NOW + expected
    waiting: Document = {"_id": "1", "leaseToken": WAITING, "leaseUntil": instant(until)}
    assert lease_runs(waiting, lifecycle, NOW)
    assert not lease_runs(waiting, lifecycle, until)


@modest
@given(
    DOCUMENTS,
    st.sampled_from(["first", "sweep-1:docs:1", "sweep-9:docs:1"]),
    st.booleans(),
    st.sampled_from([PLAIN, LEASED, Lifecycle("docs", flag="embedded")]),
)
def test_every_beginning_has_an_answer_and_changes_nothing_but_what_begins(
    document: Document,
    operation: str,
    deliberate: bool,  # noqa: FBT001 (hypothesis gives it)
    lifecycle: Lifecycle,
) -> None:
    before = dict(document)
    beginning = Beginning(
        lifecycle=lifecycle, ids=("1",), operation=operation, now=NOW, token="ours",
        deliberate=deliberate,
    )  # fmt: skip
    answer = begun(document, beginning)
    assert document == before
    if answer.how is not How.BEGUN:
        assert answer.document == document
        return
    again = begun(answer.document, beginning)
    assert (again.how, again.document) == (How.BEGUN, answer.document)
