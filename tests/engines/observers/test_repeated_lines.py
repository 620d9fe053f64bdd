"""Equal failures by the thousand: a log that stays readable, and whose numbers add up."""

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headway.adapters.logs.repeats import INTERVAL, Repeats
from headway.facts import Fact, GaveUp, RetryScheduled
from headway.logs import LogObserver
from headway.retrying import Reason
from headway.testing.clock import VirtualClock
from headway.testing.servers.process import wait_until
from tests.engines.observers.facts import GIVEN_UP, dead, failure, recovered, scheduled


class Site:
    """A log whose time is virtual."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.records: list[logging.LogRecord] = []
        self.due: list[Any] = []
        self.log = log = logging.getLogger("headway.of.this.test")
        log.setLevel(logging.INFO)
        handler = logging.Handler()
        vars(handler)["emit"] = self.records.append
        log.handlers = [handler]
        log.propagate = False
        repeats = Repeats(log, self._seconds, lambda _after, call: self.due.append(call))
        self.observer = LogObserver(log, repeats)

    def _seconds(self) -> float:
        return self.clock.read().steady

    def wait(self, seconds: float) -> None:
        """Let time pass; what was to be called by then is called."""
        self.clock.advance(timedelta(seconds=seconds))
        calls, self.due = self.due, []
        for call in calls:
            call()

    def failing(self, fact: Fact, *, times: int, seconds: float) -> None:
        """Have a fact told again and again over some time."""
        for _ in range(times):
            self.observer.tell(fact)
            self.clock.advance(timedelta(seconds=seconds / times))

    def lines(self, text: str) -> list[logging.LogRecord]:
        return [each for each in self.records if text in each.getMessage()]

    def counted(self, text: str) -> int:
        """Count the failures that lines tell of: one each, or as many as a summary says."""
        return sum(getattr(each, "count", 1) for each in self.lines(text))


@pytest.fixture
def site() -> Site:
    return Site()


def raised(why: str) -> ValueError:
    try:
        if why == "a":
            raise ValueError("a")  # noqa: TRY301 (where it is raised matters)
        raise ValueError("b")  # noqa: TRY301
    except ValueError as error:
        return error


FAULT = scheduled(TimeoutError("no answer"), retry=1, max_retries=2)
OTHER = scheduled(ConnectionResetError("reset"), retry=1, max_retries=2)
END = dead(Reason.NON_RETRYABLE, failure=failure(KeyError("price"), 1), attempts=1)


@pytest.mark.parametrize(
    ("fact", "text", "level"),
    [
        (FAULT, "Operation failed", logging.WARNING),
        (END, "Event sent to DLQ", logging.ERROR),
        (recovered(), "Event processed successfully", logging.INFO),
    ],
    ids=["retries", "ends", "recovered"],
)
def test_60_000_equal_failures_in_a_minute_are_a_few_lines_that_add_up(
    site: Site, fact: Fact, text: str, level: int
) -> None:
    site.failing(fact, times=60_000, seconds=60)
    site.wait(INTERVAL)
    assert len(site.records) < 100
    assert site.counted(text) == 60_000
    summary = site.lines(text)[-1]
    assert summary.levelno == level
    assert not summary.exc_info


def test_the_first_end_is_written_in_full_and_a_summary_keeps_its_fields(site: Site) -> None:
    site.failing(END, times=500, seconds=0.5)
    site.observer.flush()
    site.observer.flush()
    assert site.counted("Event sent to DLQ") == 500
    assert site.records[0].exc_info
    summary: Any = site.records[-1]
    assert (summary.service, summary.event_type, summary.reason) == (
        "chunking",
        "JSONParsed",
        "non_retryable",
    )


def test_another_failure_between_them_is_shown(site: Site) -> None:
    site.failing(FAULT, times=5_000, seconds=5)
    site.failing(scheduled(raised("a")), times=1_000, seconds=1)
    for other in (OTHER, END, scheduled(raised("b"))):  # b was raised in another line than a
        site.observer.tell(other)
    site.failing(FAULT, times=5_000, seconds=5)
    assert len(site.lines("attempt 1/3): ConnectionResetError: reset")) == 1
    assert len(site.lines("attempt 3/9): ValueError: b")) == 1
    (end,) = site.lines("Event sent to DLQ")
    assert end.exc_info


def test_failures_that_come_slowly_or_after_a_quiet_time_are_written_in_full(site: Site) -> None:
    site.failing(END, times=60, seconds=600)
    assert len(site.records) == 60
    site.failing(END, times=1_000, seconds=1)
    site.wait(INTERVAL)
    site.wait(INTERVAL)
    site.records.clear()
    site.observer.tell(END)
    (line,) = site.records
    assert line.exc_info


@pytest.mark.parametrize(
    ("numbered", "text"),
    [
        (
            lambda n: dead(Reason.UNROUTABLE, event_type=f"Type{n}", failure=None),
            "Event sent to DLQ",
        ),
        (lambda n: replace(GIVEN_UP, document_id=f"o-{n}"), "failed_max_retries"),
    ],
    ids=["unknown types", "documents given up"],
)
def test_any_number_of_names_is_one_kind(
    site: Site, numbered: Callable[[int], Fact], text: str
) -> None:
    for number in range(10_000):
        site.observer.tell(numbered(number))
    site.observer.flush()
    assert len(site.records) < 20
    assert site.counted(text) == 10_000


def test_calls_are_summed_up_by_function_and_error(site: Site) -> None:
    failed = failure(TimeoutError("no answer"), 1)
    call: dict[str, Any] = {"call": "charge", "failure": failed, "max_attempts": 5}
    site.failing(RetryScheduled(**call, delay=timedelta(0)), times=10_000, seconds=10)
    site.observer.tell(RetryScheduled(**{**call, "call": "refund"}, delay=timedelta(0)))
    site.failing(GaveUp(**call, reason=Reason.TTL_EXCEEDED), times=10_000, seconds=10)
    site.observer.flush()
    assert len(site.records) < 60
    assert site.counted("detected - retrying: charge raised TimeoutError") == 10_000
    assert site.counted("detected - retrying: refund raised TimeoutError") == 1
    assert site.counted("no time left for another: charge raised") == 10_000


def test_the_real_timer_writes_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.adapters.logs.repeats.INTERVAL", 0.05)
    site = Site()
    observer = LogObserver(site.log, Repeats(site.log, lambda: next(ticks)))
    ticks = iter([0.0] * 500 + [1.0] * 500)
    for _ in range(500):
        observer.tell(END)
    assert wait_until(lambda: bool(site.lines("more in")), timedelta(seconds=10))
    assert site.counted("Event sent to DLQ") == 500


def test_a_process_that_ends_writes_what_it_left_out_and_its_forked_child_does_not() -> None:
    program = (
        "import logging, os; logging.basicConfig(format='%(message)s')\n"
        "from headway import retry\n"
        "@retry(max_attempts=1)\n"
        "def charge(): raise TimeoutError('no answer')\n"
        "for _ in range(500):\n"
        "    try: charge()\n"
        "    except TimeoutError: pass\n"
        "if child := os.fork(): os.waitpid(child, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("490 more in ") == 1
    assert done.stderr.count("Traceback") == 10
