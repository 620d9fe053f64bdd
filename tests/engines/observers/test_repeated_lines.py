"""Equal failures by the thousand: a log that stays readable, and whose numbers add up."""

import logging
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from headway import Service, retry
from headway.adapters.logs.formats import extras
from headway.adapters.logs.repeats import INTERVAL, Repeats
from headway.facts import DocumentGivenUp, Fact, GaveUp, RetryScheduled
from headway.logs import LogObserver
from headway.ports import fork
from headway.retrying import Reason
from headway.testing.clock import VirtualClock
from headway.testing.servers.process import wait_until
from headway.testing.trial import Trial
from tests.engines.observers.event_facts import dead, failure, recovered, scheduled


class _Keeping(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


class Site:
    """A log whose time is virtual."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.records: list[logging.LogRecord] = []
        self.due: list[Any] = []
        self.log = log = logging.getLogger("headway.of.this.test")
        log.setLevel(logging.INFO)
        log.handlers = [_Keeping(self.records)]
        log.propagate = False
        self.repeats = Repeats(log, self._seconds, lambda _after, call: self.due.append(call))
        self.observer = LogObserver(log, self.repeats)

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


FAULT = scheduled(TimeoutError("no answer"), retry=1, max_retries=2)
OTHER = scheduled(ConnectionResetError("reset"), retry=1, max_retries=2)
END = dead(Reason.NON_RETRYABLE, failure=failure(KeyError("price"), 1), attempts=1)


def test_60_000_equal_failures_in_a_minute_are_a_few_lines_that_add_up(site: Site) -> None:
    site.failing(FAULT, times=60_000, seconds=60)
    site.wait(INTERVAL)
    assert len(site.records) < 100
    assert site.counted("Operation failed") == 60_000
    (first, *_) = site.records
    assert first.getMessage().startswith("Operation failed (attempt 1/3): TimeoutError: no answer")


def test_ends_are_summed_up_too_and_the_first_is_written_in_full(site: Site) -> None:
    site.failing(END, times=60_000, seconds=60)
    site.wait(INTERVAL)
    assert len(site.records) < 100
    assert site.counted("Event sent to DLQ") == 60_000
    assert {each.levelno for each in site.records} == {logging.ERROR}
    assert site.records[0].exc_info
    summary = site.records[-1]
    assert not summary.exc_info
    shown = extras(summary)
    assert (shown["service"], shown["event_type"], shown["reason"]) == (
        "chunking",
        "JSONParsed",
        "non_retryable",
    )


def test_another_failure_between_them_is_shown(site: Site) -> None:
    site.failing(FAULT, times=5_000, seconds=5)
    site.observer.tell(OTHER)
    site.observer.tell(END)
    site.failing(FAULT, times=5_000, seconds=5)
    (other,) = site.lines("ConnectionResetError: reset, raised by")
    assert "attempt 1/3" in other.getMessage()
    (end,) = site.lines("Event sent to DLQ")
    assert end.exc_info


def test_failures_of_one_type_that_were_raised_in_different_places_are_different(
    site: Site,
) -> None:
    def raised(why: str) -> ValueError:
        try:
            if why == "a":
                raise ValueError("a")  # noqa: TRY301 (where it is raised matters)
            raise ValueError("b")  # noqa: TRY301
        except ValueError as error:
            return error

    site.failing(scheduled(raised("a")), times=1_000, seconds=1)
    site.observer.tell(scheduled(raised("b")))
    assert len(site.lines("Operation failed (attempt 3/9): ValueError: b")) == 1


def test_a_summary_comes_although_no_other_failure_does(site: Site) -> None:
    site.failing(FAULT, times=500, seconds=0.5)
    before = site.counted("Operation failed")
    site.wait(INTERVAL)
    assert before < 500
    assert site.counted("Operation failed") == 500
    (summary,) = site.lines("more in")
    assert summary.levelno == logging.WARNING
    assert "Operation failed (attempt 1/3): TimeoutError: no answer" in summary.getMessage()


def test_what_was_not_written_yet_is_written_at_the_end(site: Site) -> None:
    site.failing(END, times=500, seconds=0.5)
    site.observer.flush()
    assert site.counted("Event sent to DLQ") == 500
    site.observer.flush()
    assert site.counted("Event sent to DLQ") == 500


def test_failures_that_come_slowly_are_all_written_in_full(site: Site) -> None:
    site.failing(END, times=60, seconds=600)
    assert len(site.records) == 60
    assert not site.lines("more in")


def test_after_a_quiet_time_failures_are_written_in_full_again(site: Site) -> None:
    site.failing(END, times=1_000, seconds=1)
    site.wait(INTERVAL)
    site.wait(INTERVAL)
    site.records.clear()
    site.observer.tell(END)
    (line,) = site.records
    assert line.exc_info


def test_recovered_events_are_summed_up(site: Site) -> None:
    site.failing(recovered(), times=10_000, seconds=10)
    site.wait(INTERVAL)
    assert len(site.records) < 20
    assert site.counted("Event processed successfully") == 10_000


def test_any_number_of_unknown_types_is_one_kind(site: Site) -> None:
    for number in range(10_000):
        site.observer.tell(dead(Reason.UNROUTABLE, event_type=f"Type{number}", failure=None))
    site.observer.flush()
    assert len(site.records) < 20
    assert site.counted("Event sent to DLQ") == 10_000


def test_documents_given_up_are_summed_up(site: Site) -> None:
    for number in range(10_000):
        site.observer.tell(
            DocumentGivenUp(
                collection="orders",
                document_id=f"o-{number}",
                attempts=3,
                last_attempt_time="",
                last_error="KeyError: 'price'",
            )
        )
    site.observer.flush()
    assert len(site.records) < 20
    assert site.counted("is given up as failed_max_retries") == 10_000


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


def test_a_level_that_is_off_is_not_summed_up_either(site: Site) -> None:
    site.log.setLevel(logging.ERROR)
    site.failing(FAULT, times=1_000, seconds=1)
    site.observer.flush()
    assert site.records == []


def test_a_forked_child_does_not_repeat_what_its_parent_counts(site: Site) -> None:
    site.failing(END, times=500, seconds=0.5)
    fork._forked()
    site.records.clear()
    site.repeats.flush()
    assert site.records == []


def test_the_real_timer_writes_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.adapters.logs.repeats.INTERVAL", 0.05)
    site = Site()
    observer = LogObserver(site.log, Repeats(site.log, lambda: next(ticks)))
    ticks = iter([0.0] * 500 + [1.0] * 500)
    for _ in range(500):
        observer.tell(END)
    assert wait_until(lambda: bool(site.lines("more in")), timedelta(seconds=10))
    assert site.counted("Event sent to DLQ") == 500


def test_a_process_that_ends_writes_what_it_has_left_out() -> None:
    program = (
        "import logging; logging.basicConfig(format='%(message)s')\n"
        "from headway import retry\n"
        "@retry(max_attempts=1)\n"
        "def charge(): raise TimeoutError('no answer')\n"
        "for _ in range(500):\n"
        "    try: charge()\n"
        "    except TimeoutError: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "490 more in " in done.stderr
    assert done.stderr.count("Traceback") == 10


async def test_a_service_whose_handler_always_fails_says_how_many(site: Site) -> None:
    shop = Service("shop")

    @shop.on("OrderPlaced")
    async def charge(event: Any, work: Any) -> None:
        raise PermissionError("declined") from OSError("the bank said no")

    trial = Trial(shop, clock=site.clock)
    for number in range(300):
        await trial.publish("OrderPlaced", {"order": number}, event_id=f"o-{number}")
    await trial.run()
    for fact in trial.facts.facts:
        site.observer.tell(fact)
    site.observer.flush()
    ends = await trial.letters("shop.failed")
    assert site.counted("Event sent to DLQ") == len(ends) == 300
    said = site.lines("Event sent to DLQ")[0].getMessage()
    assert "shop.test_a_service_whose_handler_always_fails_says_how_many.<locals>.charge" in said
    assert "(OrderPlaced) raised PermissionError: declined" in said
    assert "(caused by OSError: the bank said no)" in said


def test_retry_itself_writes_to_the_same_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "headway")
    clock = VirtualClock()

    @retry(max_attempts=2, clock=clock)
    def quote() -> None:
        raise TimeoutError("no answer") from ConnectionRefusedError("amqp://bob:s3cret@broker")

    with pytest.raises(TimeoutError):
        quote()
    warning, end = caplog.records
    assert (warning.levelname, end.levelname) == ("WARNING", "ERROR")
    assert not warning.exc_info
    assert end.exc_info
    for line in (warning.getMessage(), end.getMessage()):
        assert "quote raised TimeoutError: no answer" in line
        assert "(caused by ConnectionRefusedError: amqp://bob:***@broker)" in line
