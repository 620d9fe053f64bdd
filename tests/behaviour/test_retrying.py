"""Retrying calls, sync and async, on virtual time."""

import asyncio
import contextlib
import gc
import logging
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import tenacity

from headway import DocumentNotFoundError, retry, retry_on_oc000
from headway.facts import Fact, GaveUp, Recovered, RetryScheduled
from headway.retrying import Exponential, FullJitter, NoJitter, Reason, Stepped
from headway.testing.chance import Fixed, Seeded
from headway.testing.clock import VirtualClock
from headway.testing.facts import Recorder

TENTH = timedelta(milliseconds=100)
DOUBLING = Exponential(base=TENTH, cap=timedelta(seconds=10), jitter=NoJitter())

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Bench:
    """A retry whose time, chance and facts the test holds in its hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.recorder = Recorder()
        self.tools: dict[str, Any] = {
            "clock": self.clock,
            "chance": Fixed(0.5),
            "observer": self.recorder,
        }

    def retry(self, **given: Any) -> Decorator:
        return retry(**{"backoff": DOUBLING, "ttl": None} | self.tools | given)

    def on_oc000(self, **given: Any) -> Decorator:
        return retry_on_oc000(**self.tools | given)

    @property
    def kinds(self) -> list[type[Fact]]:
        return [type(fact) for fact in self.recorder.facts]


@pytest.fixture
def bench() -> Bench:
    return Bench()


class Failing:
    """Fails as told, then answers; counts its calls."""

    def __init__(self, *failures: BaseException, answer: object = "done") -> None:
        self._failures = list(failures)
        self._answer = answer
        self.calls = 0

    def sync(self, *_args: object, **_kwargs: object) -> object:
        self.calls += 1
        if self._failures:
            raise self._failures.pop(0)
        return self._answer

    async def awaited(self, *args: object, **kwargs: object) -> object:
        await asyncio.sleep(0)
        return self.sync(*args, **kwargs)


def lost() -> ConnectionResetError:
    return ConnectionResetError("lost")


Call = Callable[[Decorator, Failing], Any]


def call_sync(decorate: Decorator, failing: Failing) -> Any:
    return decorate(failing.sync)()


def call_async(decorate: Decorator, failing: Failing) -> Any:
    async def main() -> Any:
        return await decorate(failing.awaited)()

    return asyncio.run(main())


both = pytest.mark.parametrize("call", [call_sync, call_async], ids=["sync", "async"])


@both
def test_a_call_that_succeeds_at_once_is_called_once_and_tells_nothing(
    call: Call, bench: Bench
) -> None:
    failing = Failing()
    assert call(bench.retry(), failing) == "done"
    assert failing.calls == 1
    assert bench.recorder.facts == []
    assert bench.clock.waits == []


@both
def test_a_call_recovers_after_the_waits_of_its_backoff(call: Call, bench: Bench) -> None:
    failing = Failing(lost(), lost(), lost())
    assert call(bench.retry(), failing) == "done"
    assert failing.calls == 4
    assert bench.clock.waits == [TENTH, 2 * TENTH, 4 * TENTH]
    assert bench.kinds == [RetryScheduled] * 3 + [Recovered]


@both
def test_success_is_told_after_it_happened_with_what_it_took(call: Call, bench: Bench) -> None:
    call(bench.retry(name="store"), Failing(lost(), lost()))
    (recovered,) = bench.recorder.of(Recovered)
    assert (recovered.call, recovered.attempts) == ("store", 3)
    assert recovered.elapsed == 3 * TENTH


@both
def test_each_retry_is_told_with_its_failure(call: Call, bench: Bench) -> None:
    first, second = lost(), TimeoutError()
    call(bench.retry(), Failing(first, second))
    told = bench.recorder.of(RetryScheduled)
    assert [fact.failure.error for fact in told] == [first, second]
    assert [fact.failure.attempt for fact in told] == [1, 2]
    assert [fact.delay for fact in told] == [TENTH, 2 * TENTH]
    assert [fact.max_attempts for fact in told] == [5, 5]
    assert told[1].failure.at - told[0].failure.at == TENTH
    assert told[0].failure.diagnosis.rule == "python.connection"


@both
def test_giving_up_is_told_once_at_the_end(call: Call, bench: Bench) -> None:
    failing = Failing(*(lost() for _ in range(9)))
    with pytest.raises(ConnectionResetError):
        call(bench.retry(max_attempts=3), failing)
    assert failing.calls == 3
    assert bench.kinds == [RetryScheduled, RetryScheduled, GaveUp]
    (gave_up,) = bench.recorder.of(GaveUp)
    assert gave_up.reason is Reason.MAX_ATTEMPTS_EXCEEDED
    assert (gave_up.failure.attempt, gave_up.max_attempts) == (3, 3)


@both
def test_a_permanent_failure_is_raised_at_once(call: Call, bench: Bench) -> None:
    failing = Failing(TypeError("wrong"))
    with pytest.raises(TypeError, match="wrong"):
        call(bench.retry(), failing)
    assert failing.calls == 1
    (gave_up,) = bench.recorder.of(GaveUp)
    assert gave_up.reason is Reason.NON_RETRYABLE
    assert bench.clock.waits == []


@both
def test_a_permanent_failure_ends_what_was_being_retried(call: Call, bench: Bench) -> None:
    with pytest.raises(TypeError):
        call(bench.retry(), Failing(lost(), TypeError("wrong")))
    assert bench.kinds == [RetryScheduled, GaveUp]


@both
def test_the_exception_of_the_last_attempt_is_raised_itself(call: Call, bench: Bench) -> None:
    errors = [lost(), lost()]
    with pytest.raises(ConnectionResetError) as raised:
        call(bench.retry(max_attempts=2), Failing(*errors))
    assert raised.value is errors[1]
    assert raised.value.__cause__ is None


@both
def test_a_note_on_the_last_exception_says_why_there_was_no_other_attempt(
    call: Call, bench: Bench
) -> None:
    first, last = lost(), lost()
    with pytest.raises(ConnectionResetError):
        call(bench.retry(max_attempts=2), Failing(first, last))
    (note,) = last.__notes__
    assert note == (
        "headway gave up at attempt 2 of 2 (max_attempts_exceeded): "
        "builtins.ConnectionResetError is transient by rule python.connection"
    )
    assert not hasattr(first, "__notes__")


@both
def test_a_note_on_a_permanent_exception_says_so(call: Call, bench: Bench) -> None:
    with pytest.raises(TypeError) as raised:
        call(bench.retry(max_attempts=2), Failing(TypeError()))
    (note,) = raised.value.__notes__
    assert note == (
        "headway gave up at attempt 1 of 2 (non_retryable): "
        "builtins.TypeError is permanent by rule python.programming"
    )


@both
@pytest.mark.parametrize("attempts", [1, 2])
def test_the_traceback_reaches_the_line_that_raised(
    call: Call, bench: Bench, attempts: int
) -> None:
    with pytest.raises(ConnectionResetError) as raised:
        call(bench.retry(max_attempts=attempts), Failing(lost(), lost()))
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert frames[-1].name == "sync"
    assert frames[-1].filename == __file__
    assert "raise self._failures.pop(0)" in str(frames[-1].line)


@both
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_stops_a_program_is_neither_retried_nor_told(
    call: Call, bench: Bench, attempt: int, stop: type[BaseException]
) -> None:
    failing = Failing(*(lost() for _ in range(attempt - 1)), stop())
    with pytest.raises(stop):
        call(bench.retry(), failing)
    assert failing.calls == attempt
    assert bench.kinds == [RetryScheduled] * (attempt - 1)


async def test_a_cancelled_attempt_is_not_retried(bench: Bench) -> None:
    entered = asyncio.Event()

    @bench.retry()
    async def endless() -> None:
        entered.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(endless())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.recorder.facts == []


async def test_a_call_that_is_cancelled_while_it_waits_makes_no_other_attempt() -> None:
    waiting = asyncio.Event()

    class Endless(VirtualClock):
        async def wait(self, delay: timedelta) -> None:
            self.waits.append(delay)
            waiting.set()
            await asyncio.Event().wait()

    failing, recorder = Failing(lost()), Recorder()
    task = asyncio.create_task(retry(clock=Endless(), observer=recorder)(failing.awaited)())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert failing.calls == 1
    assert [type(fact) for fact in recorder.facts] == [RetryScheduled]


async def test_other_tasks_run_while_a_call_waits(bench: Bench) -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    @bench.retry()
    async def flaky() -> None:
        order.append("attempt")
        if order.count("attempt") == 1:
            raise lost()

    await asyncio.gather(flaky(), other())
    assert order == ["attempt", "other", "attempt"]


@both
def test_the_ttl_ends_retrying(call: Call, bench: Bench) -> None:
    failing = Failing(*(lost() for _ in range(99)))
    with pytest.raises(ConnectionResetError):
        call(bench.retry(max_attempts=99, ttl=timedelta(seconds=1)), failing)
    assert bench.clock.waits == [TENTH, 2 * TENTH, 4 * TENTH]  # the next wait would end at 1.5 s
    (gave_up,) = bench.recorder.of(GaveUp)
    assert gave_up.reason is Reason.TTL_EXCEEDED


def test_the_time_of_the_attempts_counts_against_the_ttl(bench: Bench) -> None:
    calls = 0

    @bench.retry(max_attempts=99, ttl=timedelta(seconds=60))
    def slow() -> None:
        nonlocal calls
        calls += 1
        bench.clock.advance(timedelta(seconds=25))
        raise lost()

    with pytest.raises(ConnectionResetError):
        slow()
    assert calls == 4  # at 25, 50.1 and 75.3 s; measured from the first failure, 100.7 s is late


@both
def test_no_wait_means_that_the_clock_is_not_asked_to_wait(call: Call, bench: Bench) -> None:
    backoff = Stepped(steps=(timedelta(),))
    assert call(bench.retry(backoff=backoff), Failing(lost(), lost())) == "done"
    assert bench.clock.waits == []


def test_the_draw_spreads_the_waits(bench: Bench) -> None:
    backoff = Exponential(base=TENTH, cap=timedelta(seconds=10), jitter=FullJitter())
    call_sync(bench.retry(backoff=backoff, chance=Fixed(0.25)), Failing(lost(), lost()))
    assert bench.clock.waits == [TENTH / 4, TENTH / 2]


def test_the_defaults_are_five_attempts_within_ten_seconds_each(bench: Bench) -> None:
    failing = Failing(*(lost() for _ in range(9)))
    with pytest.raises(ConnectionResetError):
        retry(clock=bench.clock, chance=Seeded(1))(failing.sync)()
    assert failing.calls == 5
    assert len(bench.clock.waits) == 4
    for count, wait in enumerate(bench.clock.waits):
        assert timedelta() <= wait <= TENTH * 2**count


@both
def test_the_schedule_of_oc000_is_the_one_of_the_document(call: Call, bench: Bench) -> None:
    failing = Failing(*(lost() for _ in range(9)))
    with pytest.raises(ConnectionResetError):
        call(bench.on_oc000(), failing)
    assert failing.calls == 5
    assert [wait / timedelta(milliseconds=1) for wait in bench.clock.waits] == [150, 250, 450, 850]


def test_the_schedule_of_oc000_is_adjustable(bench: Bench) -> None:
    failing = Failing(*(lost() for _ in range(9)))
    with pytest.raises(ConnectionResetError):
        call_sync(bench.on_oc000(stop_after=4, min_wait=0.2, max_wait=0.3), failing)
    assert [wait / timedelta(milliseconds=1) for wait in bench.clock.waits] == [250, 300, 300]


def test_oc000_retries_conflicts_and_lost_connections_and_nothing_else(bench: Bench) -> None:
    conflict = RuntimeError("change conflicts with another transaction (OC000)")
    assert call_sync(bench.on_oc000(), Failing(conflict, lost())) == "done"
    for error in (RuntimeError("strange"), DocumentNotFoundError("m"), ValueError("connection")):
        failing = Failing(error)
        with pytest.raises(type(error)):
            call_sync(bench.on_oc000(), failing)
        assert failing.calls == 1


def test_a_retried_function_may_call_itself(bench: Bench) -> None:
    failed: set[int] = set()

    @bench.retry(name="down")
    def down(depth: int) -> int:
        below: int = down(depth - 1) + 1 if depth else 0
        if depth not in failed:
            failed.add(depth)
            raise lost()
        return below

    assert down(3) == 3
    # Each level fails once, and each success is that of one call.
    assert [fact.attempts for fact in bench.recorder.of(Recovered)] == [2, 2, 2, 2]


async def test_a_retried_coroutine_function_may_call_itself(bench: Bench) -> None:
    failed: set[int] = set()

    @bench.retry()
    async def down(depth: int) -> int:
        below: int = await down(depth - 1) + 1 if depth else 0
        if depth not in failed:
            failed.add(depth)
            raise lost()
        return below

    assert await down(3) == 3
    assert [fact.attempts for fact in bench.recorder.of(Recovered)] == [2, 2, 2, 2]


def test_threads_that_share_a_function_do_not_disturb_one_another(bench: Bench) -> None:
    ready = threading.Barrier(8)
    calls: dict[int, int] = {}
    answers: dict[int, object] = {}

    @bench.retry(max_attempts=50)
    def fail(caller: int) -> int:
        calls[caller] = calls.get(caller, 0) + 1
        if calls[caller] <= caller * 3:
            raise ConnectionResetError(caller)
        return caller

    def run(caller: int) -> None:
        ready.wait()
        answers[caller] = fail(caller)

    threads = [threading.Thread(target=run, args=(caller,)) for caller in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    assert answers == {caller: caller for caller in range(8)}
    assert calls == {caller: caller * 3 + 1 for caller in range(8)}
    attempts: dict[object, list[int]] = {}
    for fact in bench.recorder.of(RetryScheduled):
        attempts.setdefault(fact.failure.error.args[0], []).append(fact.failure.attempt)
    assert attempts == {caller: list(range(1, caller * 3 + 1)) for caller in range(1, 8)}


async def test_tasks_that_share_a_function_do_not_disturb_one_another(bench: Bench) -> None:
    calls: dict[int, int] = {}

    @bench.retry(max_attempts=100)
    async def fail(caller: int) -> int:
        calls[caller] = calls.get(caller, 0) + 1
        await asyncio.sleep(0)
        if calls[caller] <= caller % 7:
            raise ConnectionResetError(caller)
        return caller

    assert await asyncio.gather(*(fail(caller) for caller in range(50))) == list(range(50))
    assert calls == {caller: caller % 7 + 1 for caller in range(50)}
    attempts: dict[object, list[int]] = {}
    for fact in bench.recorder.of(RetryScheduled):
        attempts.setdefault(fact.failure.error.args[0], []).append(fact.failure.attempt)
    assert all(told == list(range(1, len(told) + 1)) for told in attempts.values())
    assert bench.clock.now() - VirtualClock().now() == 63 * TENTH  # they wait side by side


@both
def test_an_explicit_try_again_of_tenacity_stays_within_the_attempts(
    call: Call, bench: Bench
) -> None:
    failing = Failing(*(tenacity.TryAgain() for _ in range(99)))
    with pytest.raises(tenacity.TryAgain):
        call(bench.retry(), failing)
    assert failing.calls == 5


@both
def test_a_function_that_uses_tenacity_itself_is_not_disturbed(call: Call, bench: Bench) -> None:
    inner = Failing(lost(), lost())

    class Outer(Failing):
        def sync(self, *args: object, **kwargs: object) -> object:
            super().sync(*args, **kwargs)
            return tenacity.Retrying(stop=tenacity.stop_after_attempt(3))(inner.sync)

    outer = Outer(lost())
    assert call(bench.retry(), outer) == "done"
    assert (outer.calls, inner.calls) == (2, 3)


@both
def test_an_observer_that_raises_does_not_disturb_the_call(
    call: Call, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def tell(self, _fact: Fact) -> None:
            raise RuntimeError("deaf")

    assert call(bench.retry(observer=Broken()), Failing(lost())) == "done"
    with pytest.raises(TypeError):
        call(bench.retry(observer=Broken()), Failing(TypeError()))
    reports = [record for record in caplog.records if "observer" in record.getMessage()]
    assert len(reports) == 3
    assert all(record.exc_info for record in reports)


def test_an_observer_that_counts_as_false_is_told_all_the_same(bench: Bench) -> None:
    class Empty(Recorder):
        def __len__(self) -> int:
            return len(self.facts)

    empty = Empty()
    call_sync(bench.retry(observer=empty), Failing(lost()))
    assert len(empty) == 2


@both
def test_the_context_is_made_once_and_only_after_a_failure(call: Call, bench: Bench) -> None:
    made: list[tuple[object, ...]] = []

    def context(*args: object, **kwargs: object) -> dict[str, str]:
        made.append((*args, kwargs))
        return {"event_id": "e-1"}

    call(bench.retry(context=context), Failing())
    assert made == []
    call(bench.retry(context=context), Failing(lost(), lost()))
    assert made == [({},)]
    assert bench.kinds == [RetryScheduled, RetryScheduled, Recovered]
    assert [getattr(fact, "context", None) for fact in bench.recorder.facts] == [
        {"event_id": "e-1"}
    ] * 3


@both
def test_a_context_that_raises_does_not_hide_the_error_of_the_call(
    call: Call, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def context(*_args: object, **_kwargs: object) -> dict[str, str]:
        raise RuntimeError("no context")

    assert call(bench.retry(context=context), Failing(lost())) == "done"
    with pytest.raises(TypeError, match="wrong"):
        call(bench.retry(context=context), Failing(TypeError("wrong")))
    (gave_up,) = bench.recorder.of(GaveUp)
    assert gave_up.context == {}
    assert "context" in caplog.text


class Event:
    def __init__(self) -> None:
        self.event_id = "e-2"
        self.event_type = "payment"
        self.body = b"..."


def test_oc000_takes_the_context_from_arguments_of_known_names(bench: Bench) -> None:
    @bench.on_oc000(stop_after=1)
    def store(event: object, event_id: str, transaction_id: int = 0, *, other: str = "") -> None:
        raise lost()

    for args, kwargs, context in (
        ((None, "e-1"), {}, {"event_id": "e-1"}),
        ((None,), {"event_id": "e-1", "other": "x"}, {"event_id": "e-1"}),
        (
            (Event(), "e-1", 7),
            {},
            {"event_id": "e-1", "event_type": "payment", "transaction_id": "7"},
        ),
        (
            ({"event_id": "e-3", "event_name": "paid", "body": "..."}, "e-1"),
            {},
            {"event_id": "e-1", "event_name": "paid"},
        ),
    ):
        with pytest.raises(ConnectionResetError):
            store(*args, **kwargs)
        assert bench.recorder.of(GaveUp)[-1].context == context


def test_a_call_with_wrong_arguments_raises_pythons_own_error(bench: Bench) -> None:
    @bench.on_oc000()
    def store(event_id: str) -> None: ...

    with pytest.raises(TypeError, match=r"store\(\) missing 1 required positional argument"):
        store()


def test_oc000_wraps_what_has_no_signature(bench: Bench) -> None:
    assert bench.on_oc000()(dict)(a=1) == {"a": 1}
    with pytest.raises(TypeError, match="not iterable"):
        bench.on_oc000()(dict)(5)
    (gave_up,) = bench.recorder.of(GaveUp)
    assert gave_up.context == {}


def test_the_name_is_that_of_the_function_or_the_one_given(bench: Bench) -> None:
    for decorate, name in ((bench.retry(), "Failing.sync"), (bench.retry(name="mine"), "mine")):
        call_sync(decorate, Failing(lost()))
        assert bench.recorder.of(Recovered)[-1].call == name


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("is_async", [False, True])
async def test_no_garbage_is_left_that_holds_what_the_call_used(
    bench: Bench, failures: int, *, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("headway"), "disabled", True)  # pytest keeps the records
    failing = Failing(*(lost() for _ in range(failures)))
    seen = weakref.ref(failing)
    decorate = bench.retry(max_attempts=2)
    gc.disable()  # what goes away without it was in no ring
    try:
        with contextlib.suppress(ConnectionResetError):
            if is_async:
                await decorate(failing.awaited)()
            else:
                decorate(failing.sync)()
        bench.recorder.facts.clear()
        del failing
        assert seen() is None
    finally:
        gc.enable()


LINES = (
    (logging.WARNING, "OC000 transaction conflict detected - retrying: {name} raised {why}"),
    (logging.INFO, "Retrying after 0.150s (attempt 1/5): {name} raised {why}"),
    (logging.INFO, "Successfully completed after 2 attempts: {name}"),
)


@both
def test_success_is_logged_only_after_success(
    call: Call, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headway")
    call(bench.on_oc000(), Failing(RuntimeError("change conflicts (OC000)")))
    name = bench.recorder.of(Recovered)[-1].call
    why = "RuntimeError: change conflicts (OC000)"
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (level, line.format(name=name, why=why)) for level, line in LINES
    ]


@both
def test_exhaustion_is_logged_once_at_the_end_and_no_error_before(
    call: Call, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headway")
    with pytest.raises(RuntimeError):
        call(bench.on_oc000(), Failing(*(RuntimeError("oc000") for _ in range(9))))
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    (end,) = (record.getMessage() for record in errors)
    name = bench.recorder.of(GaveUp)[-1].call
    assert end == f"All retry attempts exhausted (5/5): {name} raised RuntimeError: oc000"
    assert caplog.records[-1] is errors[0]
    assert not any("Successfully" in record.getMessage() for record in caplog.records)


class RefusalError(Exception):
    """An answer that comes as an exception."""


def test_an_expected_exception_is_an_answer_and_no_failure() -> None:
    recorder, clock, calls = Recorder(), VirtualClock(), []

    @retry(expected=RefusalError, observer=recorder, clock=clock)
    def ask() -> None:
        calls.append(1)
        raise TimeoutError if len(calls) < 2 else RefusalError("not on Sundays")

    with pytest.raises(RefusalError) as caught:
        ask()
    assert len(calls) == 2
    assert [type(fact) for fact in recorder.facts] == [RetryScheduled]
    assert not hasattr(caught.value, "__notes__")
