"""Reports of errors: beside the work, once each, and never at its price."""

import json
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from headway.logs import JsonFormatter, TerminalFormatter
from headway.metrics import error_reporter

SOON = timedelta(seconds=10)
LOG = logging.getLogger("headway.errors")


class Shut(logging.Handler):
    """A handler of the log of errors; while its gate is shut, a report has to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.release()
        self.gate.wait(10)
        self.threads.add(threading.current_thread().name)
        self.records.append(record)
        if self.error is not None:
            raise self.error

    @property
    def contexts(self) -> list[Any]:
        return [vars(record)["context"] for record in self.records]


@pytest.fixture
def shut(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shut]:
    monkeypatch.setenv("ERROR_REPORTER_TYPE", "log")
    shut = Shut()
    LOG.addHandler(shut)
    yield shut
    shut.gate.set()
    LOG.removeHandler(shut)


def test_reports_are_sent_in_their_order_by_another_thread_once_for_each_exception(
    shut: Shut,
) -> None:
    reporting: Any = error_reporter()
    errors = [ValueError(number) for number in range(50)]
    for number, error in enumerate(errors):
        reporting.report(error, {"number": number})
        reporting.report(error, {"number": "again"})
    assert reporting.flush(SOON)
    assert [context["number"] for context in shut.contexts] == list(range(50))
    assert threading.current_thread().name not in shut.threads
    other: Any = error_reporter()
    other.report(errors[0], {"number": "by another reporter"})
    assert other.flush(SOON)
    assert len(shut.records) == 51


def test_a_reporter_that_hangs_holds_up_no_work_and_what_finds_no_room_is_counted(
    shut: Shut, caplog: pytest.LogCaptureFixture
) -> None:
    shut.gate.clear()
    reporting: Any = error_reporter()
    context = {"attempt": 1}
    reporting.report(ValueError("in hand"), context)
    context["attempt"] = 2
    assert shut.entered.acquire(timeout=10)
    errors = [ValueError(number) for number in range(1010)]
    for error in errors:
        reporting.report(error, {})
    assert reporting.dropped == 10
    assert len([record for record in caplog.records if "dropped" in record.message]) == 1
    assert not reporting.flush(timedelta(milliseconds=10))
    shut.gate.set()
    assert reporting.flush(SOON)
    assert len(shut.records) == 1001
    assert shut.contexts[0] == {"attempt": 1}
    reporting.report(errors[-1], {})  # it was not reported, so it still can be
    assert reporting.flush(SOON)
    assert len(shut.records) == 1002


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [RuntimeError("no network"), SystemExit()])
def test_a_reporter_that_raises_breaks_nothing_and_goes_on(shut: Shut, error: Any) -> None:
    shut.error = error
    reporting: Any = error_reporter()
    before = set(threading.enumerate())
    for number in range(3):
        reporting.report(ValueError(number), {})
        assert shut.entered.acquire(timeout=10)
        if isinstance(error, SystemExit):  # it ends the thread of reports, which has to come back
            for thread in set(threading.enumerate()) - before:
                thread.join(10)
    assert reporting.flush(SOON)
    assert len(shut.records) == 3


def raise_one() -> None:
    raise ValueError("two\nlines from http://u:s3cret@host: Bearer s3cret1")


@pytest.mark.parametrize(
    ("outcome", "level"),
    [("final", logging.ERROR), ("retrying", logging.WARNING), ("recovered", logging.INFO)],
)
def test_the_log_gets_one_line_with_traceback_and_context_and_no_password(
    outcome: str, level: int, shut: Shut, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", LOG.name)
    context = {"message": "taken", "retry_count": 3, "outcome": outcome}
    reporting: Any = error_reporter()
    try:
        raise_one()
    except ValueError as error:
        reporting.report(error, {**context, "headers": {"X-Api-Key": "a s3cret"}})
    assert reporting.flush(SOON)
    (record,) = shut.records
    assert record.levelno == level
    assert "\n" not in record.getMessage()
    line = json.loads(JsonFormatter().format(record))
    assert context.items() <= line["context"].items()
    assert line["error_type"] == "ValueError"
    assert "raise_one" in line["traceback"]
    for formatter in (logging.Formatter(), JsonFormatter(), TerminalFormatter()):
        assert "http://u:***@host: Bearer ***" in formatter.format(record)
        assert "s3cret" not in formatter.format(record)


@pytest.mark.parametrize(
    ("settings", "is_sent"),
    [
        ({}, False),
        ({"ERROR_REPORTER_URL": " "}, False),
        ({"ERROR_REPORTER_TYPE": "noop", "ERROR_REPORTER_URL": "http://h/x"}, False),
        ({"ERROR_REPORTER_TYPE": "NOOP"}, False),
        ({"ERROR_REPORTER_TYPE": "http"}, True),
        ({"ERROR_REPORTER_URL": "http://h/x"}, True),
    ],
    ids=["nothing", "empty address", "noop", "NOOP", "http", "address"],
)
def test_reports_are_sent_only_where_the_user_asked_for_them(
    settings: dict[str, str], *, is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ERROR_REPORTER_TYPE")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert hasattr(error_reporter(), "flush") == is_sent
