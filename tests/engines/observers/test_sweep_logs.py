"""What the log says of sweeps."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.errors import NotPrimaryError, ServerSelectionTimeoutError

from headway.facts import (
    CollectionFailed,
    CollectionLeftAlone,
    CollectionSwept,
    DocumentGivenUp,
    DocumentsHeldBack,
    DocumentsNotRebuilt,
    DocumentsRefused,
    DocumentsRequeued,
    LeasesDoubted,
    Skip,
    Status,
    SweepEnded,
    SweepFact,
)
from headway.logs import LogObserver
from headway.testing.ports import Tally

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def ended(status: Status, *collections: CollectionSwept) -> SweepEnded:
    return SweepEnded(
        status=status, ended=NOW, elapsed=timedelta(seconds=1.5), collections=collections
    )


def swept(**fields: Any) -> CollectionSwept:
    return CollectionSwept(
        collection="messages",
        requeued=3,
        skipped={Skip.BACKOFF: 2},
        given_up=1,
        **fields,
    )


GIVEN_UP = DocumentGivenUp(
    collection="archives",
    document_id="a-1",
    attempts=3,
    last_attempt_time="2029-12-31T00:00:00Z",
    last_error="ValueError: no boundary",
)

LINES: dict[str, tuple[SweepFact, str, str]] = {
    "ended": (
        ended(Status.SUCCESS, swept(tally=Tally(stuck=2, given_up=4))),
        "INFO",
        (
            "Sweep ended in 1.50s: 3 requeued, 2 waiting for their backoff, 1 given up, 0 errors;"
            " 2 stuck"
        ),
    ),
    "failed": (
        ended(Status.FAILURE, swept(errors={"OSError": 2})),
        "ERROR",
        (
            "Sweep failed in 1.50s: 3 requeued, 2 waiting for their backoff, 1 given up, 2 "
            "errors; unknown how many stuck"
        ),
    ),
    "given up": (
        GIVEN_UP,
        "ERROR",
        (
            "Document a-1 of archives has had all its attempts (3, the last at "
            "2029-12-31T00:00:00Z) and is given up as failed_max_retries; last error: ValueError:"
            " no boundary"
        ),
    ),
    "given up, and nothing is known of it": (
        DocumentGivenUp(
            collection="archives", document_id="a", attempts=3, last_attempt_time="", last_error=""
        ),
        "ERROR",
        (
            "Document a of archives has had all its attempts (3, the last at an unknown time) and"
            " is given up as failed_max_retries; last error: none is known"
        ),
    ),
    "requeued": (
        DocumentsRequeued(collection="messages", document_ids=("m1", "m2")),
        "DEBUG",
        "Requeued 2 documents of messages: m1, m2",
    ),
    "held back": (
        DocumentsHeldBack(collection="messages", count=70, limit=30, after_downtime=False),
        "WARNING",
        (
            "70 documents of messages are due and held back, over 30 in one run; they come in "
            "later runs, or set RETRY_JOB_LIMIT"
        ),
    ),
    "held back after a downtime": (
        DocumentsHeldBack(collection="messages", count=70, limit=30, after_downtime=True),
        "WARNING",
        (
            "70 documents of messages are due and held back, over 30 in one run; no sweep had "
            "ended for long, so the first ones are careful: each may send twice as many, or set "
            "RETRY_JOB_CAP_AFTER_DOWNTIME"
        ),
    ),
    "not rebuilt": (
        DocumentsNotRebuilt(
            collection="archives",
            event_type="ArchiveIngested",
            error_type="KeyError",
            count=7,
            first_id="a-1",
            first_error="'source'",
        ),
        "ERROR",
        (
            "No ArchiveIngested that its handler accepts can be made of 7 documents of archives: "
            "KeyError: 'source' (the first is a-1); give its handler a rebuild= that fits, "
            "mend the documents, or put them away: headway documents archive archives a-1 --stuck "
            "(or purge)"
        ),
    ),
    "doubted": (
        LeasesDoubted(collection="messages", over=300, leased=4),
        "ERROR",
        (
            "300 leases on documents of messages are over at once and only 4 run: heartbeats must"
            " have failed, so none of these is requeued this time; look at the store and the "
            "network between it and the workers"
        ),
    ),
    "left alone": (
        CollectionLeftAlone(
            collection="chunks",
            service="embedding",
            event_type="ChunksPrepared",
            probes=0,
            pause=timedelta(minutes=15),
        ),
        "WARNING",
        (
            "Nothing of chunks is requeued while ChunksPrepared of embedding is paused, or what it "
            "needs is down; looking again in 900s"
        ),
    ),
    "probed": (
        CollectionLeftAlone(
            collection="chunks",
            service="embedding",
            event_type="ChunksPrepared",
            probes=1,
            pause=timedelta(minutes=30),
        ),
        "WARNING",
        (
            "Only one document of chunks is requeued while ChunksPrepared of embedding is paused, "
            "or what it needs is down; the next one in 1800s"
        ),
    ),
    "refused": (
        DocumentsRefused(
            collection="chunks",
            error_type="WriteError",
            count=7,
            first_ids=("c-1", "c-2"),
            first_error="Document failed validation",
        ),
        "ERROR",
        (
            "The store refuses to change 7 documents of chunks: WriteError: Document failed "
            "validation (c-1, c-2, ...); the others are swept: mend them, or what refuses them (a "
            "validator, a unique index, a trigger, a limit of size)"
        ),
    ),
    "not taken": (
        DocumentsRefused(
            collection="chunks",
            error_type="UnsendableError",
            count=1,
            first_ids=("c-1",),
            first_error="it has 200000 bytes, and the broker takes at most 100000",
            by_bus=True,
        ),
        "ERROR",
        (
            "The bus takes no event of 1 document of chunks: UnsendableError: it has 200000 bytes, "
            "and the broker takes at most 100000 (c-1); the others are swept: mend it, or have "
            "rebuild= make what it takes"
        ),
    ),
    "broken off": (
        CollectionFailed(collection="chunks", error=ConnectionError("nobody is there"), claims=2),
        "ERROR",
        (
            "The sweep of chunks was broken off: ConnectionError: nobody is there; what it had "
            "claimed is sent again by a later one"
        ),
    ),
    "broken off with no claim left behind": (
        CollectionFailed(collection="chunks", error=ConnectionError("nobody is there")),
        "ERROR",
        (
            "The sweep of chunks was broken off: ConnectionError: nobody is there; what is left "
            "comes in a later one"
        ),
    ),
    "broken off before it began": (
        CollectionFailed(collection="", error=ConnectionError("nobody is there")),
        "ERROR",
        ("The sweep could not begin: ConnectionError: nobody is there; nothing was changed"),
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_for_each_fact(name: str, caplog: pytest.LogCaptureFixture) -> None:
    fact, level, line = LINES[name]
    with caplog.at_level(logging.DEBUG, logger="headway"):
        LogObserver().tell(fact)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (level, line)


def test_the_fields_of_a_document_that_was_given_up(caplog: pytest.LogCaptureFixture) -> None:
    LogObserver().tell(GIVEN_UP)
    fields: Any = caplog.records[0]
    assert (fields.document_id, fields.collection) == ("a-1", "archives")
    assert (fields.lastAttemptTime, fields.attemptCount) == ("2029-12-31T00:00:00Z", 3)
    assert fields.lastError == "ValueError: no boundary"


def test_ids_and_errors_from_outside_stay_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    nasty = "a\nERROR all is lost\x1b[2J"
    LogObserver().tell(
        DocumentGivenUp(
            collection=nasty,
            document_id=nasty,
            attempts=3,
            last_attempt_time=nasty,
            last_error=nasty,
        )
    )
    assert caplog.records[0].getMessage().isprintable()


def test_passwords_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    error = RuntimeError("cannot reach postgresql://me:s3cret@db/app")
    LogObserver().tell(CollectionFailed(collection="chunks", error=error))
    assert "s3cret" not in caplog.records[0].getMessage()


def test_that_nobody_answers_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    error = ServerSelectionTimeoutError("db:1: refused, Topology Description: <all of it>")
    LogObserver().tell(CollectionFailed(collection="chunks", error=error))
    (record,) = caplog.records
    assert record.exc_info is None
    assert "ServerSelectionTimeoutError: db:1: refused; what" in record.getMessage()


def test_a_restarting_mongodb_is_no_dump_of_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    answer = {"ok": 0.0, "topologyVersion": {"processId": b"c\x01", "counter": 4}}
    error = NotPrimaryError("node is shutting down", answer)
    LogObserver().tell(CollectionFailed(collection="chunks", error=error))
    (record,) = caplog.records
    assert record.exc_info is None
    assert "off: NotPrimaryError: node is shutting down; what" in record.getMessage()


def test_one_is_not_said_as_many(caplog: pytest.LogCaptureFixture) -> None:
    one = DocumentsHeldBack(collection="messages", count=1, limit=3, after_downtime=False)
    LogObserver().tell(one)
    LogObserver().tell(ended(Status.FAILURE, swept(errors={"KeyError": 1})))
    held_back, run = (record.getMessage() for record in caplog.records)
    assert held_back.startswith("1 document of messages is due and held back")
    assert "1 error;" in run
