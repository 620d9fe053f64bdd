"""The lines that events leave in the log, word for word."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

import pytest

from headway.adapters.logs.formats import extras
from headway.core.showing import shown
from headway.facts import EventFact
from headway.logs import JsonFormatter, LogObserver, TerminalFormatter
from headway.retrying import Reason
from tests.engines.observers.event_facts import (
    ALL,
    BACK,
    DOWN,
    DUPLICATES,
    GOES_ON,
    KEY,
    LEASE_LOST,
    MISSING,
    NOT_THERE,
    PARKED,
    PAUSED,
    PROCESSED,
    REACHED_AGAIN,
    SILENT,
    SKIPPED,
    SUPERSEDED,
    SUSPECT,
    TAKEN_OVER,
    WAITING,
    dead,
    recovered,
    scheduled,
)

Said = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def logging_reports_its_own_errors(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert "Logging error" not in capsys.readouterr().err


@pytest.fixture(autouse=True)
def everything_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "headway")


def lines(caplog: pytest.LogCaptureFixture, fact: EventFact) -> Said:
    LogObserver().tell(fact)
    return [(record.levelname, record.getMessage()) for record in caplog.records]


MISSED = "chunking.chunk (JSONParsed) raised DocumentNotFoundError: not found in messages: 123"
RETRY = ("INFO", f"Retry attempt 3/8 for event with idempotency key: {KEY}; {MISSED}")


def test_a_document_that_is_not_there_yet_is_no_error_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert lines(caplog, scheduled()) == [RETRY]
    assert extras(caplog.records[0]) == {
        "service": "chunking",
        "event_type": "JSONParsed",
        "idempotency_key": KEY,
        "attempt": 3,
        "retry": 3,
        "max_retries": 8,
        "wait_time": 1.0,
        "error_type": "DocumentNotFoundError",
        "last_error": "DocumentNotFoundError: not found in messages: 123",
        "handler": "chunk",
        "rule": "headway.document_not_found",
        "is_retryable": True,
    }


def test_a_fault_that_passes_is_one_warning_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = TimeoutError("no answer")
    error.__cause__ = OSError("refused")
    fact = scheduled(error, retry=1, max_retries=2, delay=timedelta(seconds=5))
    why = "TimeoutError: no answer (caused by OSError: refused)"
    raised = f"chunking.chunk (JSONParsed) raised {why}"
    assert lines(caplog, fact) == [
        (
            "WARNING",
            f"Operation failed (attempt 1/3): {why}, raised by chunking.chunk (JSONParsed)",
        ),
        ("INFO", f"Retrying in 5 seconds... {raised}"),
        ("INFO", f"Retry attempt 1/2 for event with idempotency key: {KEY}; {raised}"),
    ]
    assert not any(record.exc_info for record in caplog.records)
    assert {extras(record)["cause"] for record in caplog.records} == {"caused by OSError: refused"}


def test_an_error_is_told_without_its_passwords(caplog: pytest.LogCaptureFixture) -> None:
    error = TimeoutError("401 from http://u:s3cret@host: Basic dTpzM2NyZXQ=")
    (_, line), *_ = lines(caplog, scheduled(error, retry=1, max_retries=2, delay=timedelta(0)))
    assert "TimeoutError: 401 from http://u:***@host: Basic ***, raised by" in line
    whole = logging.Formatter().format(caplog.records[0])
    assert "s3cret" not in whole
    assert "dTpz" not in whole


@pytest.mark.parametrize(
    ("retry", "most", "warned"),
    [(1, 8, False), (6, 8, False), (7, 8, True), (8, 8, True), (1, 1, True), (1, 2, False)],
)
def test_somebody_is_warned_before_the_retries_are_used_up(
    caplog: pytest.LogCaptureFixture, *, retry: int, most: int, warned: bool
) -> None:
    said = lines(caplog, scheduled(retry=retry, max_retries=most))
    line = f"Approaching max attempts (retry {retry}/{most}) for event with idempotency key: {KEY}"
    assert (("WARNING", f"{line}; {MISSED}") in said) == warned


@pytest.mark.parametrize(
    ("age", "ttl", "warned"),
    [
        (timedelta(minutes=23), timedelta(minutes=30), False),
        (timedelta(minutes=24), timedelta(minutes=30), True),
        (timedelta(seconds=1439), timedelta(minutes=30), True),  # with the wait, it is 80 %
        (timedelta(days=9), None, False),
    ],
)
def test_somebody_is_warned_before_the_time_is_over(
    caplog: pytest.LogCaptureFixture, *, age: timedelta, ttl: timedelta | None, warned: bool
) -> None:
    said = lines(caplog, scheduled(age=age, ttl=ttl))
    then = f"{age.total_seconds() + 1:.0f}s"
    line = f"Approaching TTL ({then} of 1800s) for event with idempotency key: {KEY}; {MISSED}"
    assert (("WARNING", line) in said) == warned


def test_a_success_after_retries_says_how_many_and_how_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert lines(caplog, recovered()) == [
        (
            "INFO",
            (
                "Event processed successfully after 3 retry attempts (total latency: 1.75s): "
                "chunking.chunk (JSONParsed)"
            ),
        )
    ]
    assert extras(caplog.records[0])["idempotency_key"] == KEY


def test_a_letter_is_an_error_that_tells_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(caplog, dead()) == [
        ("ERROR", f"Event sent to DLQ after 8 attempts (reason: max_attempts_exceeded): {MISSED}")
    ]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is MISSING
    assert extras(record) == {
        "service": "chunking",
        "event_type": "JSONParsed",
        "idempotency_key": KEY,
        "attempt": 9,
        "retry": 8,
        "reason": "max_attempts_exceeded",
        "error_type": "DocumentNotFoundError",
        "last_error": "DocumentNotFoundError: not found in messages: 123",
        "is_retryable": True,
        "rule": "headway.document_not_found",
        "handler": "chunk",
        "letter_id": "a1b2",
        "failed_queue": "chunking.failed",
        "latency": 64.0,
    }


def test_bytes_that_are_no_event_leave_a_line_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    why = "MalformedEventError: no JSON"
    fact = dead(
        Reason.MALFORMED, attempts=0, failure=None, event_type="", handler="", last_error=why
    )
    assert lines(caplog, fact) == [
        ("ERROR", f"Event sent to DLQ without a retry (reason: malformed): chunking: {why}")
    ]
    assert not caplog.records[0].exc_info


@pytest.mark.parametrize(
    ("fact", "level", "message"),
    [
        (
            DOWN,
            "WARNING",
            (
                "Dependency down (postgresql.connection): JSONParsed of chunking are parked and "
                "nothing is counted against them; they resume by themselves when a probe succeeds"
            ),
        ),
        (
            BACK,
            "WARNING",
            "Dependency back after 90s (postgresql.connection): JSONParsed of chunking resume",
        ),
        (
            PAUSED,
            "ERROR",
            (
                "Paused JSONParsed of chunking: 20 of the last 23 failed for good, as after a bad "
                "deploy. The others wait in their queue. Fix or roll back and restart, or send "
                "SIGHUP; a probe that succeeds resumes them too."
            ),
        ),
        (GOES_ON, "WARNING", "Resumed JSONParsed of chunking"),
        (
            SUSPECT,
            "WARNING",
            (
                "Event came back 2 times because its worker was gone, and now runs alone; "
                f"idempotency key: {KEY}"
            ),
        ),
        (
            LEASE_LOST,
            "WARNING",
            (
                "Event finished too late, so nothing of it took effect: it belongs to another "
                f"worker by now; idempotency key: {KEY}"
            ),
        ),
        (
            SILENT,
            "ERROR",
            (
                "Nothing has reached this worker of chunking for 31s: look at the engine and the "
                "network; it goes on trying"
            ),
        ),
        (REACHED_AGAIN, "WARNING", "Events reach this worker of chunking again, after 45s"),
        (
            WAITING,
            "INFO",
            (
                "Waiting for document m-1 of messages: worker host:7 holds its lease until "
                "2026-01-17T05:00:00+00:00 and may renew it (12 waiting, first JSONParsed)"
            ),
        ),
        (
            TAKEN_OVER,
            "WARNING",
            (
                "Taking over document m-1 of messages: worker host:7 is gone and held its lease "
                "until 2026-01-17T05:00:00+00:00"
            ),
        ),
        (
            SUPERSEDED,
            "INFO",
            (
                "Superseded: 2 JSONParsed not run, because their documents are processed, given up "
                f"or in the hands of a newer operation; idempotency key of the last: {KEY}"
            ),
        ),
        (PROCESSED, "INFO", "Processed 3 items in 2.75s"),
        (
            DUPLICATES,
            "INFO",
            (
                "Already done: chunking does not run 2 JSONParsed again, which came as a "
                f"duplicate; idempotency key: {KEY}"
            ),
        ),
        (SKIPPED, "DEBUG", "Already there, skipping 4 documents of JSONParsed"),
        (
            NOT_THERE,
            "WARNING",
            (
                "chunking.chunk (JSONParsed) succeeded, and m-1, m-2, m-3 and 1 more got no "
                "status: not found in messages, which documents= names. Use require to wait for "
                "documents, or mend documents="
            ),
        ),
        (PARKED, "DEBUG", "Parked one JSONParsed until postgresql.connection is over"),
    ],
)
def test_other_facts_have_a_line_each(
    caplog: pytest.LogCaptureFixture, fact: EventFact, level: str, message: str
) -> None:
    assert lines(caplog, fact) == [(level, message)]
    assert extras(caplog.records[0])["service"] == "chunking"


def test_there_is_a_fact_of_every_kind_in_these_tests() -> None:
    assert {type(fact) for fact in ALL} == set(get_args(EventFact))


def test_what_is_processed_all_the_time_is_said_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = LogObserver()
    for _ in range(3):
        observer.tell(PROCESSED)
    assert [record.getMessage() for record in caplog.records] == ["Processed 3 items in 2.75s"]


def test_of_many_superseded_events_some_are_named_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = LogObserver()
    for _ in range(1000):
        observer.tell(SUPERSEDED)
    assert len(caplog.records) == 10


def test_of_many_duplicates_some_are_named_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = LogObserver()
    for _ in range(1000):
        observer.tell(DUPLICATES)
    assert len(caplog.records) == 10
    assert extras(caplog.records[0])["idempotency_key"] == KEY


def test_the_busy_path_says_nothing_else_where_nobody_debugs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headway")
    observer = LogObserver()
    for fact in (SKIPPED, PARKED):
        observer.tell(fact)
    assert caplog.records == []


HOSTILE = "k\nERROR: all is lost\r\x1b[31m\u2028\u202e"


def everything_from_outside() -> list[EventFact]:
    taken: dict[str, Any] = {"idempotency_key": HOSTILE, "event_type": HOSTILE}
    return [
        scheduled(TimeoutError(HOSTILE), retry=8, age=timedelta(minutes=29), **taken),
        dead(last_error=HOSTILE, error_type=HOSTILE, failure=None, **taken),
        type(SUSPECT)(service="chunking", returns=2, **taken),
        type(LEASE_LOST)(service="chunking", **taken),
        type(PARKED)(service="chunking", rule="r", **taken),
        type(SUPERSEDED)(service="chunking", count=1, why="superseded", **taken),
        type(DUPLICATES)(service="chunking", count=1, why="done", **taken),
        replace(WAITING, event_type=HOSTILE, collection=HOSTILE, document=HOSTILE, holder=HOSTILE),
        type(DOWN)(service="chunking", event_type=HOSTILE, rule="r", down=True, last_error=HOSTILE),
    ]


@pytest.mark.parametrize("fact", everything_from_outside(), ids=lambda fact: type(fact).__name__)
def test_what_comes_from_outside_cannot_forge_a_line(
    caplog: pytest.LogCaptureFixture, fact: EventFact
) -> None:
    lines(caplog, fact)
    for record in caplog.records:
        record.exc_info = None  # a traceback has many lines, whoever made it
        assert record.getMessage().isprintable()
        assert TerminalFormatter().format(record).isprintable()
        assert json.loads(JsonFormatter().format(record))["event_type"] == shown(HOSTILE)


def test_colors_of_another_library_are_left_out() -> None:
    fields = {"msg": "Started", "color_message": "\x1b[36mStarted", "port": 80}
    record = logging.makeLogRecord(fields)
    line = json.loads(JsonFormatter().format(record))
    assert (line["port"], "color_message" in line) == (80, False)


def test_a_key_of_a_megabyte_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    ((_, line),) = lines(caplog, scheduled(idempotency_key="x" * 1_000_000))
    assert len(line) < 1_000
    assert f"xxx...; {MISSED}" in line
