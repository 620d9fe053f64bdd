from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from headway import ConfigurationError, Lifecycle
from headway.core.beginning import begun
from headway.testing.ports import Beginning, Document, How, State
from tests.unit.documents import DOCUMENTS, HOUR, NOW, ago, modest

PLAIN = Lifecycle("docs")
FLAGGED = Lifecycle("docs", flag="embedded")


STATUSES: dict[State, list[Any]] = {
    State.PENDING: ["pending", "processing", None],
    State.FAILED: ["failed"],
    State.GIVEN_UP: ["failed_max_retries"],
    State.PROCESSED: ["processed", "completed"],
    State.FOREIGN: ["archived", "", "Pending", 0, True, ["pending"], {"status": "pending"}],
}


@pytest.mark.parametrize("expected", STATUSES)
def test_the_status_says_where_a_document_is(expected: State) -> None:
    for status in STATUSES[expected]:
        assert PLAIN.state({"status": status}) is expected


def test_success_may_have_a_word_of_its_own() -> None:
    assert PLAIN.state({}) is FLAGGED.state({}) is State.PENDING
    own = Lifecycle("docs", processed="parsed")
    assert own.state({"status": "parsed"}) is State.PROCESSED
    assert own.state({"status": "completed"}) is State.PROCESSED
    assert PLAIN.state({"status": "parsed"}) is State.FOREIGN
    assert own.on_success() == {"status": "parsed"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"embedded": True}, State.PROCESSED),
        ({"embedded": True, "status": "failed"}, State.PROCESSED),
        ({"embedded": True, "lastFailedAt": ago(HOUR)}, State.PROCESSED),
        ({"embedded": 1}, State.PENDING),
        ({"embedded": "true"}, State.PENDING),
        ({"embedded": False, "status": "processed"}, State.PENDING),
        ({"embedded": False, "status": "archived"}, State.PENDING),
        ({"embedded": False, "status": "failed"}, State.FAILED),
        ({"embedded": False, "status": "failed_max_retries"}, State.GIVEN_UP),
        ({"lastFailedAt": ago(HOUR)}, State.FAILED),
        ({"lastFailedAt": ago(HOUR), "lastAttemptTime": ago(HOUR)}, State.FAILED),
        ({"lastFailedAt": ago(HOUR), "lastAttemptTime": ago(2 * HOUR)}, State.FAILED),
        ({"lastFailedAt": ago(2 * HOUR), "lastAttemptTime": ago(HOUR)}, State.PENDING),
        ({"lastFailedAt": ago(HOUR), "lastAttemptTime": "some day"}, State.FAILED),
        ({"lastFailedAt": "some day", "lastAttemptTime": ago(HOUR)}, State.PENDING),
    ],
)
def test_a_flag_goes_before_the_status(document: Document, expected: State) -> None:
    assert FLAGGED.state(document) is expected


@modest
@given(DOCUMENTS)
def test_every_document_is_somewhere(document: Document) -> None:
    for lifecycle in (PLAIN, FLAGGED):
        assert lifecycle.state(document) in State


def test_a_new_document_gets_what_recovery_needs_and_keeps_what_it_has() -> None:
    assert PLAIN.born({"_id": "1"}, NOW) == {
        "_id": "1",
        "status": "pending",
        "attemptCount": 0,
        "lastAttemptTime": None,
        "createdAt": "2026-03-01T12:00:00Z",
    }
    own = {"_id": "1", "status": "archived", "attemptCount": 7, "createdAt": None}
    assert PLAIN.born(own, NOW) == {**own, "lastAttemptTime": None}
    flagged = Lifecycle("docs", flag="embedded", created="made").born({"_id": "1"}, NOW)
    assert flagged == {
        "_id": "1",
        "embedded": False,
        "attemptCount": 0,
        "lastAttemptTime": None,
        "made": "2026-03-01T12:00:00Z",
    }


@pytest.mark.parametrize("lease", [None, HOUR])
@pytest.mark.parametrize("flag", [None, "embedded"])
def test_success_and_failure_are_read_as_what_they_are(
    lease: timedelta | None, flag: str | None
) -> None:
    lifecycle = Lifecycle("docs", lease=lease, flag=flag)
    begun = {"_id": "1", "status": "pending", "lastAttemptTime": ago(HOUR), "leaseToken": "t"}
    failed = {**begun, **lifecycle.on_failure("ValueError", "käse", NOW)}
    assert lifecycle.state(failed) is State.FAILED
    assert failed["lastFailedAt"] == "2026-03-01T12:00:00Z"
    assert failed["lastError"] == {
        "type": "ValueError", "message": "käse", "at": "2026-03-01T12:00:00Z"
    }  # fmt: skip
    done = {**failed, **lifecycle.on_success()}
    assert lifecycle.state(done) is State.PROCESSED
    for after in (failed, done):
        assert after["leaseToken"] == (None if lease else "t")


@pytest.mark.parametrize("lifecycle", [PLAIN, FLAGGED], ids=["status", "flag"])
@modest
@given(document=DOCUMENTS)
def test_what_begins_anew_is_begun_with_its_next_event_whatever_was_before(
    lifecycle: Lifecycle, document: Document
) -> None:
    document = {**document, **lifecycle.anew()}
    assert lifecycle.state(document) is State.PENDING
    beginning = Beginning(lifecycle=lifecycle, ids=(document["_id"],), operation="next", now=NOW)
    answer = begun(document, beginning)
    assert answer.how is How.BEGUN
    assert answer.document["attemptCount"] == 1


@pytest.mark.parametrize(
    ("lifecycle", "most"),
    [
        (Lifecycle("docs"), 3),
        (Lifecycle("chunks"), 5),
        (Lifecycle("chunks", max_attempts=3), 3),
        (Lifecycle("docs", max_attempts=7), 7),
    ],
)
def test_a_worker_begins_as_often_as_was_said_or_is_usual(lifecycle: Lifecycle, most: int) -> None:
    def how(attempts: int) -> How:
        document = {"_id": "1", "status": "pending", "attemptCount": attempts}
        beginning = Beginning(lifecycle=lifecycle, ids=("1",), operation="new", now=NOW)
        return begun(document, beginning).how

    assert (how(most - 1), how(most)) == (How.BEGUN, How.OVER)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"collection": ""}, "collection"),
        ({"max_attempts": 0}, "max_attempts=0 of 'docs'"),
        ({"lease": timedelta(milliseconds=999)}, "lease=.* of 'docs'"),
        ({"lease": 60}, "lease=60"),
        ({"processed": "failed"}, "processed='failed' of 'docs'"),
        ({"processed": "processing"}, "processed='processing'"),
        ({"processed": ""}, "processed=''"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Lifecycle(**{"collection": "docs", **fields})


def test_the_words_of_an_error_hold_nothing_that_a_store_refuses() -> None:
    changes = Lifecycle("docs").on_failure("ValueError", "before\0after", NOW)
    assert changes["lastError"]["message"] == "before\N{REPLACEMENT CHARACTER}after"
