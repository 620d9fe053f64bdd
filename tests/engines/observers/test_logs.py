import errno
import io
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pymongo.errors
import pytest
import redis.exceptions

from headway.facts import CommitResolved, Fact, GaveUp, Recovered, RetryScheduled
from headway.logs import JsonFormatter, LogObserver, TerminalFormatter
from headway.retrying import DEFAULT_CLASSIFIER, Failure, Reason

AT = datetime(2024, 2, 29, 12, tzinfo=UTC)
CONTEXT = {
    "event_id": "e-1",
    "event_type": "payment",
    "event_name": "PaymentReceived",
    "transaction_id": "t-1",
}


class DriverError(Exception):
    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


CONFLICT = DriverError("40001", "change conflicts with another transaction (OC000)")
DESCRIBED = f"DriverError: {CONFLICT}"
RAISED = f"store raised {DESCRIBED}"


def failure(error: Exception, attempt: int = 2) -> Failure:
    return Failure(
        attempt=attempt, at=AT, error=error, diagnosis=DEFAULT_CLASSIFIER.classify(error)
    )


def scheduled(error: Exception, context: Mapping[str, str] = CONTEXT) -> RetryScheduled:
    return RetryScheduled(
        call="store",
        failure=failure(error),
        max_attempts=5,
        delay=timedelta(seconds=0.2341),
        context=context,
    )


def gave_up(error: Exception, reason: Reason, attempt: int = 5) -> GaveUp:
    return GaveUp(
        call="store",
        failure=failure(error, attempt),
        max_attempts=5,
        reason=reason,
        context=CONTEXT,
    )


def recovered(context: Mapping[str, str] = CONTEXT) -> Recovered:
    return Recovered(call="store", attempts=2, elapsed=timedelta(seconds=1), context=context)


class Log:
    """A logger of its own, read back line by line."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("headway.of.this.test")
        self.logger.setLevel(logging.DEBUG)
        self._stream = io.StringIO()
        self._handler = logging.StreamHandler(self._stream)
        self._handler.setFormatter(JsonFormatter())
        self.logger.handlers = [self._handler]
        self.logger.propagate = False

    def lines(self, *facts: Fact) -> list[dict[str, Any]]:
        for fact in facts:
            LogObserver(self.logger).tell(fact)
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def text(self, fact: Fact) -> str:
        self._handler.setFormatter(TerminalFormatter())
        LogObserver(self.logger).tell(fact)
        return self._stream.getvalue()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture(autouse=True)
def logging_reports_its_own_errors(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert "Logging error" not in capsys.readouterr().err


def said(line: dict[str, Any]) -> tuple[str, str]:
    return line["level"], line["message"]


def fields(line: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in line.items()
        if name not in ("timestamp", "level", "logger", "message", "traceback")
    }


def test_a_conflict_that_is_retried_is_a_warning_and_its_wait_an_info(log: Log) -> None:
    conflict, waiting = log.lines(scheduled(CONFLICT))
    assert said(conflict) == (
        "WARNING",
        f"OC000 transaction conflict detected - retrying: {RAISED}",
    )
    assert said(waiting) == ("INFO", f"Retrying after 0.234s (attempt 2/5): {RAISED}")


def test_every_documented_field_is_a_json_key_of_both_lines(log: Log) -> None:
    for line in log.lines(scheduled(CONFLICT)):
        assert fields(line) == {
            "event_id": "e-1",
            "event_type": "payment",
            "event_name": "PaymentReceived",
            "transaction_id": "t-1",
            "error_type": "OC000_TRANSACTION_CONFLICT",
            "sqlstate": "40001",
            "is_retryable": True,
            "attempt": 2,
            "wait_time": 0.234,
            "call": "store",
            "rule": "postgresql.conflict",
            "code_detail": "OC000",
            "last_error": DESCRIBED,
        }


def test_a_success_after_retries_is_an_info(log: Log) -> None:
    (line,) = log.lines(recovered())
    assert said(line) == ("INFO", "Successfully completed after 2 attempts: store")
    assert fields(line) == {**CONTEXT, "call": "store", "attempt": 2}


def test_exhausted_attempts_are_an_error_with_the_traceback(log: Log) -> None:
    (line,) = log.lines(gave_up(CONFLICT, Reason.MAX_ATTEMPTS_EXCEEDED))
    assert said(line) == ("ERROR", f"All retry attempts exhausted (5/5): {RAISED}")
    assert fields(line) == {
        **CONTEXT,
        "call": "store",
        "error_type": "OC000_TRANSACTION_CONFLICT",
        "sqlstate": "40001",
        "code_detail": "OC000",
        "is_retryable": True,
        "rule": "postgresql.conflict",
        "attempt": 5,
        "reason": "max_attempts_exceeded",
        "last_error": DESCRIBED,
    }
    assert "DriverError: change conflicts with another transaction" in line["traceback"]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (Reason.TTL_EXCEEDED, "Gave up at attempt 3/5: no time left for another"),
        (Reason.NON_RETRYABLE, "Non-retryable error at attempt 3/5"),
    ],
)
def test_any_other_end_is_an_error_too(log: Log, reason: Reason, message: str) -> None:
    (line,) = log.lines(gave_up(DriverError("23505", "twice"), reason, attempt=3))
    assert said(line) == ("ERROR", f"{message}: store raised DriverError: twice")
    assert (line["reason"], line["is_retryable"]) == (str(reason), False)
    assert line["error_type"] == "UNIQUE_VIOLATION"


def locked() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorname = "SQLITE_BUSY"
    return error


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (CONFLICT, "OC000 transaction conflict"),
        (DriverError("OC000", "change conflicts"), "OC000 transaction conflict"),
        (RuntimeError("mutation conflicts, please retry"), "OC000 transaction conflict"),
        (DriverError("40001", "could not serialize access"), "Transaction conflict"),
        (DriverError("40P01", "deadlock detected"), "Deadlock"),
        (DriverError("55P03", "could not obtain lock"), "Locked row"),
        (pymongo.errors.OperationFailure("WriteConflict", 112), "Transaction conflict"),
        (redis.exceptions.WatchError("changed"), "Transaction conflict"),
        (locked(), "Locked SQLite file"),
        (sqlite3.OperationalError("database is locked"), "Locked SQLite file"),
        (ConnectionResetError("reset"), "Connection error"),
        (DriverError("08006", "lost"), "Connection error"),
        (TimeoutError(errno.ETIMEDOUT, "timed out"), "Connection error"),
        (TimeoutError("no answer"), "Timeout"),
        (redis.exceptions.TimeoutError("no answer"), "Timeout"),
        (DriverError("53300", "full"), "RESOURCES_EXHAUSTED"),
        (RuntimeError("odd"), "UNKNOWN_ERROR"),
    ],
)
def test_a_line_says_only_what_was_met(log: Log, error: Exception, found: str) -> None:
    level, message = said(log.lines(scheduled(error))[0])
    assert level == "WARNING"
    assert message.startswith(f"{found} detected - retrying: store raised {type(error).__name__}")


def test_every_line_of_a_failure_names_the_function_the_error_and_its_cause(log: Log) -> None:
    error = TimeoutError("no answer")
    error.__cause__ = ConnectionResetError("by amqp://bob:s3cret@broker")
    lines = log.lines(scheduled(error), gave_up(error, Reason.MAX_ATTEMPTS_EXCEEDED))
    assert len(lines) == 3
    for line in lines:
        assert line["message"].endswith(
            "store raised TimeoutError: no answer (caused by ConnectionResetError: by "
            "amqp://bob:***@broker)"
        )
        assert line["cause"] == "caused by ConnectionResetError: by amqp://bob:***@broker"


def test_a_failure_that_is_retried_is_one_warning_without_a_traceback(log: Log) -> None:
    lines = log.lines(scheduled(CONFLICT))
    assert [line["level"] for line in lines] == ["WARNING", "INFO"]
    assert not any("traceback" in line for line in lines)


def test_the_errors_of_a_group_are_not_hidden_by_it(log: Log) -> None:
    line = log.lines(scheduled(ExceptionGroup("two failed", [KeyError("a"), KeyError("b")])))[0]
    assert "two failed (2 sub-exceptions) (caused by KeyError: 'a')" in line["message"]


def test_a_ring_of_causes_ends(log: Log) -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    assert len(log.lines(scheduled(first))[0]["message"]) < 300


def test_a_field_without_a_value_is_left_out(log: Log) -> None:
    line = log.lines(scheduled(ConnectionResetError()))[0]
    assert "sqlstate" not in line
    assert "code_detail" not in line


@pytest.mark.parametrize(
    ("committed", "message"),
    [
        (True, "Connection lost during COMMIT: operation op-1 was committed; function: store"),
        (
            False,
            (
                "Connection lost during COMMIT: operation op-1 was not committed, running it "
                "again; function: store"
            ),
        ),
    ],
)
def test_a_resolved_commit_is_a_warning(log: Log, *, committed: bool, message: str) -> None:
    fact = CommitResolved(call="store", operation_id="op-1", committed=committed, context=CONTEXT)
    (line,) = log.lines(fact)
    assert said(line) == ("WARNING", message)
    assert fields(line) == {**CONTEXT, "call": "store", "committed": committed}


@pytest.mark.parametrize(
    "name",
    [
        *("name", "message", "args", "module", "exc_info", "asctime", "taskName", "created"),
        *("level", "timestamp", "logger", "traceback", "attempt", "call", "reason", "rule"),
    ],
)
def test_a_field_whose_name_is_taken_is_shown_under_another(log: Log, name: str) -> None:
    taken = {name: "mine"}
    facts: tuple[Fact, ...] = (
        scheduled(CONFLICT, taken),
        recovered(taken),
        CommitResolved(call="store", operation_id="op-1", committed=True, context=taken),
        GaveUp(
            call="store",
            failure=failure(CONFLICT),
            max_attempts=5,
            reason=Reason.TTL_EXCEEDED,
            context=taken,
        ),
    )
    lines = log.lines(*facts)
    assert len(lines) == 5
    for line in lines:
        assert line[f"context_{name}"] == "mine"
        assert line.get(name) != "mine"


def test_a_level_that_is_off_writes_nothing(log: Log) -> None:
    log.logger.setLevel(logging.WARNING)
    assert len(log.lines(scheduled(CONFLICT), recovered())) == 1
    log.logger.setLevel(logging.ERROR)
    assert len(log.lines(scheduled(CONFLICT))) == 1


def test_without_a_logger_of_ones_own_it_is_headways(caplog: pytest.LogCaptureFixture) -> None:
    LogObserver().tell(scheduled(CONFLICT))
    assert [record.name for record in caplog.records] == ["headway"]


def record(message: str = "said %s", *args: object, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "a.logger", "levelno": 20, "levelname": "INFO", "msg": message, "args": args}
    )
    made.created = AT.timestamp()
    made.__dict__.update(extra)
    return made


def test_a_json_line_has_when_how_bad_who_and_what() -> None:
    line = JsonFormatter().format(record("said %s", "grün\nand more", size=3, when=AT))
    assert "\n" not in line
    assert json.loads(line) == {
        "timestamp": "2024-02-29T12:00:00+00:00",
        "level": "INFO",
        "logger": "a.logger",
        "message": "said grün\nand more",
        "size": 3,
        "when": "2024-02-29 12:00:00+00:00",
    }


def fail() -> None:
    raise RuntimeError("broken")


def test_a_terminal_line_is_short_and_ends_with_its_fields() -> None:
    line = TerminalFormatter().format(record("said %s", "this", size=3, nothing=None))
    hour = AT.astimezone().strftime("%H:%M:%S")
    assert line == f"{hour} INFO    said this  size=3"
    assert TerminalFormatter().format(record("plain")) == f"{hour} INFO    plain"


def test_both_formats_show_the_traceback() -> None:
    try:
        fail()
    except RuntimeError:
        broken = record("failed", exc_info=sys.exc_info())
    in_json = json.loads(JsonFormatter().format(broken))["traceback"]
    assert in_json.splitlines()[-1] == "RuntimeError: broken"
    assert TerminalFormatter().format(broken).endswith(f"INFO    failed\n{in_json}")


def test_a_fact_reads_well_in_a_terminal(log: Log) -> None:
    text = log.text(recovered())
    assert "INFO    Successfully completed after 2 attempts: store  event_id=e-1 " in text


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
        "import logging; from headway.adapters.logs.formats import TerminalFormatter;"
        "from headway.adapters.logs.writing import write_lines; write_lines(TerminalFormatter());"
        "logging.getLogger('httpx').info('a request'); logging.getLogger('headway').info('a line');"
        "logging.getLogger('httpx').warning('a warning')"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert "a line" in done.stderr
    assert "a warning" in done.stderr
    assert "a request" not in done.stderr


def test_plain_formatter_of_the_user_writes_no_secret_and_no_lone_surrogate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.handler.setFormatter(logging.Formatter("%(message)s"))
    error = ValueError("password=hunter2 \ud800")
    LogObserver().tell(gave_up(error, Reason.NON_RETRYABLE))
    assert "hunter2" not in caplog.text
    caplog.text.encode()
