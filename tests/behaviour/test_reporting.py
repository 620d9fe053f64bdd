"""Reports of errors: beside the work, once each, and never at its price."""

import gc
import json
import logging
import threading
import weakref
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from headway import ConfigurationError
from headway.adapters.reporting.log import LogReporter
from headway.adapters.reporting.silent import NoReporter
from headway.logs import JsonFormatter, TerminalFormatter
from headway.metrics import error_reporter
from headway.runtime.reporting import Reporting

SOON = timedelta(seconds=10)


class Kept:
    """Keeps reports; while it is shut, whoever reports to it has to wait."""

    def __init__(self) -> None:
        self.reports: list[tuple[BaseException, Mapping[str, Any]]] = []
        self.threads: set[threading.Thread] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
        self.entered.set()
        self.gate.wait(10)
        self.threads.add(threading.current_thread())
        self.reports.append((error, context))


@pytest.fixture
def kept() -> Iterator[Kept]:
    kept = Kept()
    yield kept
    kept.gate.set()


def test_reports_are_sent_in_their_order_by_another_thread(kept: Kept) -> None:
    reporting = Reporting(kept)
    errors = [ValueError(number) for number in range(50)]
    for number, error in enumerate(errors):
        reporting.report(error, {"number": number})
    assert reporting.flush(SOON)
    assert [error for error, _ in kept.reports] == errors
    assert [context["number"] for _, context in kept.reports] == list(range(50))
    (thread,) = kept.threads
    assert thread is not threading.current_thread()
    assert thread.daemon


def test_one_exception_is_one_report_whoever_meets_it(kept: Kept) -> None:
    reporting, error = Reporting(kept), KeyError("a")
    reporting.report(error, {"where": "in the handler"})
    reporting.report(error, {"where": "at the end"})
    reporting.report(KeyError("a"), {"where": "another"})
    assert reporting.flush(SOON)
    assert [context["where"] for _, context in kept.reports] == ["in the handler", "another"]


def test_two_reporters_both_hear_of_an_exception() -> None:
    first, second, error = Kept(), Kept(), KeyError("a")
    for kept in (first, second):
        reporting = Reporting(kept)
        reporting.report(error, {})
        assert reporting.flush(SOON)
    assert len(first.reports) == len(second.reports) == 1


def test_a_reporter_that_hangs_holds_up_nobody_and_what_finds_no_room_is_counted(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.gate.clear()
    reporting = Reporting(kept, room=3)
    reporting.report(ValueError("in hand"), {})
    assert kept.entered.wait(10)
    errors = [ValueError(number) for number in range(10)]
    for error in errors:
        reporting.report(error, {})
    assert reporting.dropped == 7
    assert len([record for record in caplog.records if "dropped" in record.message]) == 1
    assert not reporting.flush(timedelta(milliseconds=10))
    kept.gate.set()
    assert reporting.flush(SOON)
    assert len(kept.reports) == 4
    reporting.report(errors[-1], {})  # it was not reported, so it still can be
    assert reporting.flush(SOON)
    assert len(kept.reports) == 5


class Broken:
    def report(self, *_: object) -> None:
        raise RuntimeError("no network")


def test_a_reporter_that_raises_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    reporting = Reporting(Broken())
    for number in range(3):
        reporting.report(ValueError(number), {})
    assert reporting.flush(SOON)
    assert reporting.failed == 3
    assert "failed" in caplog.records[0].message


class Leaves:
    """Ends its thread, as a reporter that calls sys.exit would."""

    def __init__(self) -> None:
        self.seen = threading.Semaphore(0)

    def report(self, *_: object) -> None:
        self.seen.release()
        raise SystemExit


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ended_is_started_again() -> None:
    leaves = Leaves()
    reporting = Reporting(leaves)
    for number in range(3):
        reporting.report(ValueError(number), {})
        assert leaves.seen.acquire(timeout=10)
        thread = reporting._thread
        assert thread is not None
        thread.join(10)


class Unwilling(Exception):  # noqa: N818
    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError("as it is")


class Hostile(dict[str, Any]):
    def keys(self) -> Any:
        raise RuntimeError("not today")

    def __iter__(self) -> Any:
        raise RuntimeError("not today")


def test_hostile_exceptions_and_contexts_do_not_reach_the_work(kept: Kept) -> None:
    reporting, unwilling = Reporting(kept), Unwilling()
    reporting.report(unwilling, {})
    reporting.report(unwilling, {})
    reporting.report(ValueError(), Hostile())
    reporting.report(ValueError(), None)  # type: ignore[arg-type]
    assert reporting.flush(SOON)
    assert kept.reports[0][0] is unwilling
    assert len(kept.reports) <= 2


def test_the_context_is_what_it_was_when_it_was_reported(kept: Kept) -> None:
    kept.gate.clear()
    reporting, context = Reporting(kept), {"attempt": 1}
    reporting.report(ValueError(), context)
    context["attempt"] = 2
    kept.gate.set()
    assert reporting.flush(SOON)
    assert kept.reports[0][1] == {"attempt": 1}


class Known(Exception):  # noqa: N818
    """One that can be referred to weakly."""


def test_a_report_that_was_sent_is_let_go() -> None:
    reporting, error = Reporting(NoReporter()), Known()
    gone = weakref.ref(error)
    reporting.report(error, {})
    assert reporting.flush(SOON)
    del error
    gc.collect()
    assert gone() is None


def test_without_reports_there_is_no_thread_and_nothing_to_wait_for() -> None:
    reporting = Reporting(NoReporter())
    assert reporting.flush(timedelta())
    assert reporting._thread is None


def test_the_log_gets_one_line_with_traceback_and_context(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        raise_one()
    except ValueError as error:
        LogReporter().report(error, {"message": "taken", "event": {"a": 1}, "retry_count": 3})
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("headway.errors", logging.ERROR)
    assert record.getMessage() == "Error reported: ValueError: two\\nlines"
    line = json.loads(JsonFormatter().format(record))
    assert line["context"] == {"message": "taken", "event": {"a": 1}, "retry_count": 3}
    assert line["error_type"] == "ValueError"
    assert "raise_one" in line["traceback"]
    assert "retry_count" in TerminalFormatter().format(record).splitlines()[0]


def test_the_log_tells_no_password_whatever_its_formatter(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("401 from http://u:s3cret@host: Bearer s3cret1")
    LogReporter().report(error, {"headers": {"X-Api-Key": "a s3cret"}})
    (record,) = caplog.records
    for formatter in (logging.Formatter(), JsonFormatter(), TerminalFormatter()):
        assert "http://u:***@host: Bearer ***" in formatter.format(record)
        assert "s3cret" not in formatter.format(record)


def raise_one() -> None:
    raise ValueError("two\nlines")


@pytest.mark.parametrize("given", ["noop", "NOOP"])
def test_nobody_is_told_if_that_is_set(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERROR_REPORTER_TYPE", given)
    reporter = error_reporter()
    assert isinstance(reporter, NoReporter)
    reporter.report(ValueError(), {})


def test_log_reports_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ERROR_REPORTER_TYPE", "log")
    reporter = error_reporter()
    assert isinstance(reporter, Reporting)
    reporter.report(ValueError("a"), {})
    assert reporter.flush(SOON)
    assert [record.name for record in caplog.records] == ["headway.errors"]


@pytest.mark.parametrize(
    ("settings", "reporter"),
    [
        ({}, NoReporter),
        ({"ERROR_REPORTER_URL": " "}, NoReporter),
        ({"ERROR_REPORTER_TYPE": "noop", "ERROR_REPORTER_URL": "http://h/x"}, NoReporter),
        ({"ERROR_REPORTER_TYPE": "http"}, Reporting),
        ({"ERROR_REPORTER_URL": "http://h/x"}, Reporting),
    ],
    ids=["nothing", "empty address", "noop", "http", "address"],
)
def test_reports_are_sent_only_where_the_user_asked_for_them(
    settings: dict[str, str], reporter: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ERROR_REPORTER_TYPE")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert isinstance(error_reporter(), reporter)


@pytest.mark.parametrize(
    ("outcome", "level"),
    [("final", logging.ERROR), ("retrying", logging.WARNING), ("recovered", logging.INFO)],
)
def test_the_log_tells_final_failures_from_others(
    outcome: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headway.errors")
    LogReporter().report(ValueError("a"), {"outcome": outcome})
    (record,) = caplog.records
    assert record.levelno == level


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ERROR_REPORTER_TYPE": "sentry"}, "_TYPE='sentry'. Use one of: http, log, noop"),
        (
            {"ERROR_REPORTER_TYPE": "", "ERROR_REPORTER_URL": "localhost:8081"},
            "ERROR_REPORTER_URL='\\*\\*\\*'.*use http://HOST:PORT/api/errors",
        ),
    ],
    ids=["type", "address of the one that is meant if none is named"],
)
def test_what_cannot_be_used_is_refused(
    settings: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=why):
        error_reporter()
