"""What the log says of each fact: `log_lines.jsonl` holds every approved line with its fields."""

import errno
import json
import logging
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pymongo.errors
import pytest
import redis.exceptions

from headway.facts import DocumentsRequeued, EventFact, Fact, LeasesDoubted, Status, SweepFact
from headway.logs import JsonFormatter, LogObserver, TerminalFormatter
from headway.retrying import Reason
from headway.testing.ports import Tally
from tests.engines.observers import facts

APPROVED = Path(__file__).with_name("log_lines.jsonl")


class Log:
    """A logger of its own, whose records are kept."""

    def __init__(self) -> None:
        self.records: list[logging.LogRecord] = []
        self.logger = logging.getLogger("headway.of.this.test")
        self.logger.setLevel(logging.DEBUG)
        self.logger.propagate = False
        handler = logging.Handler()
        vars(handler)["emit"] = self.records.append
        self.logger.handlers = [handler]

    def lines(self, *told: Fact) -> list[dict[str, Any]]:
        """Tell some facts, each to an observer of its own; give the lines of all so far."""
        for fact in told:
            LogObserver(self.logger).tell(fact)
        return [json.loads(JsonFormatter().format(record)) for record in self.records]


@pytest.fixture
def log() -> Log:
    return Log()


def caused() -> TimeoutError:
    error = TimeoutError("no answer")
    error.__cause__ = ConnectionResetError("by amqp://bob:s3cret@broker")
    return error


def locked() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorname = "SQLITE_BUSY"
    return error


NO_PRIMARY = {"ok": 0.0, "topologyVersion": {"processId": b"c\x01", "counter": 4}}
MET = (
    facts.DriverError("OC000", "change conflicts"),
    RuntimeError("mutation conflicts, please retry"),
    facts.DriverError("40001", "could not serialize access"),
    facts.DriverError("40P01", "deadlock detected"),
    facts.DriverError("55P03", "could not obtain lock"),
    pymongo.errors.OperationFailure("WriteConflict", 112),
    redis.exceptions.WatchError("changed"),
    locked(),
    sqlite3.OperationalError("database is locked"),
    ConnectionResetError("reset"),
    facts.DriverError("08006", "lost"),
    TimeoutError("no answer"),
    redis.exceptions.TimeoutError("no answer"),
    facts.DriverError("53300", "full"),
    RuntimeError("odd"),
    ExceptionGroup("two failed", [KeyError("a"), KeyError("b")]),
    caused(),
)
FACTS: tuple[Fact, ...] = (
    facts.call_retried(facts.CONFLICT),
    *(facts.call_retried(error, {}) for error in MET),
    facts.call_recovered(),
    facts.call_gave_up(facts.CONFLICT, Reason.MAX_ATTEMPTS_EXCEEDED),
    facts.call_gave_up(facts.DriverError("23505", "twice"), Reason.TTL_EXCEEDED, 3),
    facts.call_gave_up(facts.DriverError("23505", "twice"), Reason.NON_RETRYABLE, 3),
    facts.commit_resolved(committed=True),
    facts.commit_resolved(committed=False),
    *facts.ALL,
    facts.scheduled(caused(), retry=1, max_retries=2, delay=timedelta(seconds=5)),
    facts.dead(
        Reason.MALFORMED, attempts=0, failure=None, event_type="", handler="", last_error="E: x"
    ),
    *(facts.BACK, facts.GOES_ON, facts.TAKEN_OVER, facts.SUPERSEDED),
    facts.swept(Status.SUCCESS, tally=Tally(stuck=2, given_up=4)),
    facts.swept(Status.FAILURE, errors={"OSError": 2}),
    facts.swept(Status.FAILURE, errors={"KeyError": 1}),
    facts.GIVEN_UP,
    replace(facts.GIVEN_UP, last_attempt_time="", last_error=""),
    DocumentsRequeued(collection="messages", document_ids=("m1", "m2")),
    facts.held_back(1, after_downtime=False),
    facts.held_back(70, after_downtime=True),
    *(facts.NOT_REBUILT, facts.REFUSED, facts.NOT_TAKEN),
    LeasesDoubted(collection="messages", over=300, leased=4),
    facts.left_alone(0),
    facts.left_alone(1),
    facts.broken_off(ConnectionError("refused"), claims=2),
    facts.broken_off(ConnectionError("refused")),
    facts.broken_off(ConnectionError("refused"), collection=""),
    facts.broken_off(
        pymongo.errors.ServerSelectionTimeoutError("db:1: refused, Topology Description: <>")
    ),
    facts.broken_off(pymongo.errors.NotPrimaryError("node is shutting down", NO_PRIMARY)),
)


def rendered() -> str:
    """Give the lines of every fact, without what depends on the time and on this machine."""
    lines = Log().lines(*FACTS)
    for line in lines:
        del line["timestamp"], line["logger"]
        if "traceback" in line:
            line["traceback"] = "..."
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)


def test_every_fact_has_its_approved_lines() -> None:
    assert rendered() == APPROVED.read_text(), (
        "Log lines have changed. If that is meant, approve them:\n"
        "    python -m tests.engines.observers.test_log_lines"
    )


def test_a_timeout_of_the_system_is_an_error_of_the_connection(log: Log) -> None:
    timeout = TimeoutError(errno.ETIMEDOUT, "timed out")  # its number differs between systems
    line, _ = log.lines(facts.call_retried(timeout))
    assert line["message"].startswith("Connection error detected - retrying")


def test_there_is_a_line_for_every_kind_of_fact() -> None:
    assert {*get_args(EventFact), *get_args(SweepFact)} <= {type(fact) for fact in FACTS}


PROMISED = (
    ("WARNING", "OC000 transaction conflict detected - retrying"),
    ("INFO", "Retrying after 0.234s (attempt 2/5)"),
    ("INFO", "Successfully completed after 2 attempts"),
    ("ERROR", "All retry attempts exhausted (5/5)"),
    ("INFO", "Retry attempt 3/8 for event with idempotency key: chunking-123-456-789"),
    ("WARNING", "Operation failed (attempt 1/3): TimeoutError: no answer"),
    ("INFO", "Retrying in 5 seconds..."),
    ("INFO", "Event processed successfully after 3 retry attempts (total latency: 1.75s)"),
    ("ERROR", "Event sent to DLQ after 8 attempts (reason: max_attempts_exceeded)"),
    ("INFO", "Processed 3 items in 2.75s"),
)


@pytest.mark.parametrize(("level", "start"), PROMISED)
def test_promised_lines_are_written_to_the_letter(log: Log, level: str, start: str) -> None:
    lines = log.lines(*FACTS)
    assert level in {line["level"] for line in lines if line["message"].startswith(start)}


def test_promised_fields_are_json_keys_of_every_line_of_a_call(log: Log) -> None:
    for line in log.lines(facts.call_retried(facts.CONFLICT)):
        assert (
            line.items()
            >= {
                **facts.CONTEXT,
                "error_type": "OC000_TRANSACTION_CONFLICT",
                "sqlstate": "40001",
                "is_retryable": True,
                "attempt": 2,
                "wait_time": 0.234,
            }.items()
        )


def test_only_a_failure_that_ends_something_has_a_traceback(log: Log) -> None:
    log.lines(facts.call_retried(facts.CONFLICT), facts.scheduled(caused()))
    assert not any(record.exc_info for record in log.records)
    log.records.clear()
    log.lines(facts.dead(), facts.call_gave_up(facts.CONFLICT, Reason.MAX_ATTEMPTS_EXCEEDED))
    errors = [record.exc_info[1] for record in log.records if record.exc_info]
    assert errors == [facts.MISSING, facts.CONFLICT]


@pytest.mark.parametrize(
    ("retry", "most", "warned"),
    [(6, 8, False), (7, 8, True), (8, 8, True), (1, 1, True), (1, 2, False)],
)
def test_a_warning_comes_before_the_retries_are_used_up(
    log: Log, *, retry: int, most: int, warned: bool
) -> None:
    lines = log.lines(facts.scheduled(retry=retry, max_retries=most))
    start = f"Approaching max attempts (retry {retry}/{most})"
    said = [line["level"] for line in lines if line["message"].startswith(start)]
    assert said == ["WARNING"] * warned


@pytest.mark.parametrize(
    ("age", "ttl", "warned"),
    [
        (timedelta(minutes=23), timedelta(minutes=30), False),
        (timedelta(seconds=1439), timedelta(minutes=30), True),  # with the wait, it is 80 %
        (timedelta(days=9), None, False),
    ],
)
def test_a_warning_comes_before_the_time_is_over(
    log: Log, *, age: timedelta, ttl: timedelta | None, warned: bool
) -> None:
    lines = log.lines(facts.scheduled(age=age, ttl=ttl))
    said = [line["level"] for line in lines if line["message"].startswith("Approaching TTL")]
    assert said == ["WARNING"] * warned


@pytest.mark.parametrize(
    "name",
    ["name", "message", "exc_info", "taskName", "level", "timestamp", "traceback", "attempt"],
)
def test_a_field_whose_name_is_taken_is_shown_under_another(log: Log, name: str) -> None:
    taken = {name: "mine"}
    lines = log.lines(
        facts.call_retried(facts.CONFLICT, taken),
        facts.call_recovered(taken),
        facts.commit_resolved(committed=True, context=taken),
        facts.call_gave_up(facts.CONFLICT, Reason.TTL_EXCEEDED, context=taken),
    )
    assert len(lines) == 5
    for line in lines:
        assert line[f"context_{name}"] == "mine"
        assert line.get(name) != "mine"


def test_a_level_that_is_off_writes_nothing(log: Log) -> None:
    log.logger.setLevel(logging.INFO)
    assert log.lines(facts.SKIPPED, facts.PARKED) == []
    log.logger.setLevel(logging.WARNING)
    assert len(log.lines(facts.call_retried(facts.CONFLICT), facts.call_recovered())) == 1


def test_without_a_logger_of_ones_own_it_is_headways(caplog: pytest.LogCaptureFixture) -> None:
    LogObserver().tell(facts.call_retried(facts.CONFLICT))
    assert [record.name for record in caplog.records] == ["headway"]


@pytest.mark.parametrize(
    ("fact", "lines"), [(facts.PROCESSED, 1), (facts.SUPERSEDED, 10), (facts.DUPLICATES, 10)]
)
def test_of_what_happens_all_the_time_some_is_said(log: Log, fact: Fact, lines: int) -> None:
    observer = LogObserver(log.logger)
    for _ in range(1000):
        observer.tell(fact)
    assert len(log.records) == lines


# What comes from outside


HOSTILE = "k\nERROR: all is lost\r\x1b[31m\u2028\u202e"
TAKEN: dict[str, Any] = {"idempotency_key": HOSTILE, "event_type": HOSTILE}
FROM_OUTSIDE: list[Fact] = [
    facts.scheduled(TimeoutError(HOSTILE), retry=8, age=timedelta(minutes=29), **TAKEN),
    facts.dead(last_error=HOSTILE, error_type=HOSTILE, failure=None, **TAKEN),
    *(
        replace(fact, **TAKEN)
        for fact in (
            facts.SUSPECT,
            facts.LEASE_LOST,
            facts.PARKED,
            facts.SUPERSEDED,
            facts.DUPLICATES,
        )
    ),
    replace(
        facts.WAITING, event_type=HOSTILE, collection=HOSTILE, document=HOSTILE, holder=HOSTILE
    ),
    replace(facts.DOWN, event_type=HOSTILE, last_error=HOSTILE),
    replace(
        facts.GIVEN_UP,
        collection=HOSTILE,
        document_id=HOSTILE,
        last_attempt_time=HOSTILE,
        last_error=HOSTILE,
    ),
]


@pytest.mark.parametrize("fact", FROM_OUTSIDE, ids=lambda fact: type(fact).__name__)
def test_what_comes_from_outside_cannot_forge_a_line(log: Log, fact: Fact) -> None:
    log.lines(fact)
    for record in log.records:
        record.exc_info = None  # a traceback has many lines
        assert record.getMessage().isprintable()
        assert TerminalFormatter().format(record).isprintable()
        assert "\n" not in JsonFormatter().format(record)


@pytest.mark.parametrize(
    "tell",
    [
        lambda error: facts.scheduled(error, retry=1, max_retries=2, delay=timedelta(0)),
        facts.broken_off,
        lambda error: facts.call_gave_up(error, Reason.NON_RETRYABLE),
    ],
)
def test_an_error_is_told_without_its_passwords(log: Log, tell: Any) -> None:
    error = TimeoutError(
        "401 from http://u:s3cret@host: Basic dTpzM2NyZXQ= password=hunter2 \ud800"
    )
    log.lines(tell(error))
    assert log.records
    for record in log.records:
        whole = logging.Formatter().format(record)  # also that of a user
        assert "http://u:***@host: Basic ***" in whole
        assert not any(secret in whole for secret in ("s3cret", "dTpz", "hunter2"))
        whole.encode()


def test_a_key_of_a_megabyte_and_a_ring_of_causes_do_not_fill_the_log(log: Log) -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    for line in log.lines(
        facts.call_retried(first), facts.scheduled(idempotency_key="x" * 1_000_000)
    ):
        assert len(line["message"]) < 1_000


# Formats


def record(message: str = "said %s", *args: object, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "a.logger", "levelno": 20, "levelname": "INFO", "msg": message, "args": args}
    )
    made.created = facts.AT.timestamp()
    made.__dict__.update(extra)
    return made


def test_a_json_line_has_time_level_logger_message_and_fields() -> None:
    given = record("said %s", "grün\nand more", size=3, when=facts.AT, color_message="\x1b[36msaid")
    line = JsonFormatter().format(given)
    assert "\n" not in line
    assert json.loads(line) == {
        "timestamp": "2026-01-17T05:00:00+00:00",
        "level": "INFO",
        "logger": "a.logger",
        "message": "said grün\nand more",
        "size": 3,
        "when": "2026-01-17 05:00:00+00:00",
    }


def test_a_terminal_line_is_short_and_ends_with_its_fields() -> None:
    line = TerminalFormatter().format(record("said %s", "this", size=3, nothing=None))
    assert line == f"{facts.AT.astimezone():%H:%M:%S} INFO    said this  size=3"


def test_both_formats_show_the_traceback() -> None:
    error = RuntimeError("broken")
    broken = record("failed", exc_info=(type(error), error, None))
    in_json = json.loads(JsonFormatter().format(broken))["traceback"]
    assert in_json.splitlines()[-1] == "RuntimeError: broken"
    assert TerminalFormatter().format(broken).endswith(f"INFO    failed\n{in_json}")


@pytest.mark.parametrize("formatter", [JsonFormatter(), TerminalFormatter()])
def test_what_a_library_says_is_written_without_secrets(formatter: logging.Formatter) -> None:
    line = formatter.format(
        record(
            "HTTP Request: POST %s",
            "http://bob:s3cret@127.0.0.1/v1?api_key=s3cret",
            api_key="s3cret",
            where="amqp://bob:s3cret@broker",
        )
    )
    assert "s3cret" not in line
    assert "http://bob:***@127.0.0.1" in line


def test_what_libraries_say_of_each_request_is_not_written() -> None:
    told = (
        "import logging; from headway.logs import TerminalFormatter, write_lines;"
        "write_lines(TerminalFormatter());"
        "logging.getLogger('httpx').info('a request'); logging.getLogger('headway').info('a line');"
        "logging.getLogger('httpx').warning('a warning')"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert "a line" in done.stderr
    assert "a warning" in done.stderr
    assert "a request" not in done.stderr


if __name__ == "__main__":
    APPROVED.write_text(rendered())
