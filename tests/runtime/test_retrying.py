"""Retrying calls, sync and async, on virtual time."""

import asyncio
import functools
import gc
import inspect
import logging
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest
import tenacity

from headway.assembly.retrying import retry, retry_on_oc000
from headway.core.action import Reason
from headway.core.backoff import Exponential, FullJitter, NoJitter, Stepped
from headway.core.catalogue import EVERYTHING
from headway.core.classify import rules_for
from headway.core.errors import ConfigurationError, DocumentNotFoundError
from headway.core.facts import Fact, GaveUp, Recovered, RetryScheduled
from headway.core.failure import Verdict
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
def test_a_note_on_the_exception_says_why_there_was_no_other_attempt(
    call: Call, bench: Bench
) -> None:
    for failures, note in (
        (
            [lost(), lost()],
            "headway gave up at attempt 2 of 2 (max_attempts_exceeded): "
            "builtins.ConnectionResetError is transient by rule python.connection",
        ),
        (
            [TypeError()],
            "headway gave up at attempt 1 of 2 (non_retryable): "
            "builtins.TypeError is permanent by rule python.programming",
        ),
    ):
        with pytest.raises(type(failures[-1])) as raised:
            call(bench.retry(max_attempts=2), Failing(*failures))
        assert raised.value.__notes__ == [note]
        assert not hasattr(failures[0], "__notes__") or failures[0] is raised.value


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

    task = asyncio.create_task(endless())  # type: ignore[arg-type]
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.recorder.facts == []


async def test_a_call_that_is_cancelled_while_it_waits_makes_no_other_attempt() -> None:
    class Endless(VirtualClock):
        async def wait(self, delay: timedelta) -> None:
            self.waits.append(delay)
            await asyncio.Event().wait()

    clock, failing, recorder = Endless(), Failing(lost()), Recorder()
    task = asyncio.create_task(retry(clock=clock, observer=recorder)(failing.awaited)())
    while not clock.waits:
        await asyncio.sleep(0)
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


class Service:
    def __init__(self) -> None:
        self.calls = 0

    @retry(backoff=Stepped(steps=(timedelta(),)))
    def method(self, answer: str) -> str:
        self.calls += 1
        if self.calls == 1:
            raise lost()
        return answer

    @retry(backoff=Stepped(steps=(timedelta(),)))
    async def async_method(self, answer: str) -> str:
        self.calls += 1
        if self.calls == 1:
            raise lost()
        return answer

    @classmethod
    @retry
    def of_class(cls) -> str:
        return cls.__name__

    @staticmethod
    @retry
    def of_nobody(answer: str) -> str:
        return answer


async def test_methods_of_every_kind_can_be_retried() -> None:
    service, other = Service(), Service()
    assert service.method("a") == "a"
    assert (service.calls, other.calls) == (2, 0)
    assert await other.async_method("b") == "b"
    assert (service.calls, other.calls) == (2, 2)
    assert Service.of_class() == service.of_class() == "Service"
    assert Service.of_nobody("c") == service.of_nobody("c") == "c"


def test_partials_can_be_retried(bench: Bench) -> None:
    failing = Failing(lost())
    assert bench.retry()(functools.partial(failing.sync, 1, two=2))() == "done"
    (fact,) = bench.recorder.of(Recovered)
    assert fact.call == "partial"


class Callback:
    """An object that is called and gives an awaitable."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls == 1:
            raise lost()
        return "done"


@pytest.mark.parametrize(
    "make",
    [
        lambda: functools.partial(Failing(lost()).awaited),
        lambda: functools.partial(functools.partial(Failing(lost()).awaited)),
        Callback,
        lambda: functools.partial(Callback()),
    ],
    ids=["partial", "partial of partial", "callable object", "partial of callable object"],
)
async def test_whatever_gives_an_awaitable_is_awaited_and_retried(
    make: Callable[[], Callable[..., Coroutine[Any, Any, str]]], bench: Bench
) -> None:
    assert await bench.retry()(make())() == "done"
    assert bench.kinds == [RetryScheduled, Recovered]


def test_the_wrapper_looks_like_what_it_wraps() -> None:
    @retry
    def plain(one: int, *, two: str = "2") -> str:
        """Say something."""
        return f"{one}{two}"

    @retry()
    async def awaited() -> None: ...

    assert plain(1) == "12"
    assert (plain.__name__, plain.__doc__) == ("plain", "Say something.")
    assert str(inspect.signature(plain)) == "(one: int, *, two: str = '2') -> str"
    assert not inspect.iscoroutinefunction(plain)
    assert inspect.iscoroutinefunction(awaited)


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "function", [generator, async_generator, functools.partial(generator)], ids=repr
)
def test_generators_are_refused(function: Callable[..., Any]) -> None:
    for decorate in (retry, retry(), retry_on_oc000()):
        with pytest.raises(ConfigurationError, match=r"is a generator: .* collect the items in a"):
            decorate(function)


@pytest.mark.parametrize("wrapped", [classmethod, staticmethod])
def test_a_decorator_in_the_wrong_order_is_refused(wrapped: type) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        retry(wrapped(len))
    assert str(refusal.value) == (
        f"a {wrapped.__name__} cannot be retried: write @{wrapped.__name__} above the retry"
    )


@pytest.mark.parametrize("thing", [5, "store", None], ids=repr)
def test_what_cannot_be_called_is_refused(thing: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        retry()(thing)
    assert str(refusal.value) == (
        f"{thing!r} cannot be retried: give a function, and settings by their names, such as "
        "max_attempts=5"
    )


def test_on_names_the_exceptions_to_retry_and_makes_all_others_permanent(bench: Bench) -> None:
    assert call_sync(bench.retry(on=LookupError), Failing(KeyError())) == "done"
    assert call_sync(bench.retry(on=(KeyError, ValueError)), Failing(ValueError())) == "done"
    for on in (LookupError, (KeyError, ValueError)):
        with pytest.raises(ConnectionResetError):
            call_sync(bench.retry(on=on), Failing(lost()))


def test_on_sees_through_causes_as_the_catalogue_does(bench: Bench) -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = KeyError("inside")
    assert call_sync(bench.retry(on=KeyError), Failing(error)) == "done"


def test_on_may_be_a_classifier_of_ones_own(bench: Bench) -> None:
    own = EVERYTHING.before([rules_for((TypeError,), Verdict.TRANSIENT)])
    assert call_sync(bench.retry(on=own), Failing(TypeError())) == "done"


@pytest.mark.parametrize(
    "on", [(), 5, "ConnectionError", (ConnectionError, "x"), KeyboardInterrupt, BaseException]
)
def test_on_that_names_no_exceptions_is_refused(on: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"on=.* is not accepted: name exception classes"):
        retry(on=on)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_attempts": 0}, "max_attempts=0 is not accepted: the first try counts"),
        ({"max_attempts": "5"}, "max_attempts='5' is not accepted: the first try counts"),
        ({"ttl": timedelta()}, r"ttl=datetime.timedelta\(0\) is not accepted: use a positive"),
        ({"ttl": 60}, "ttl=60 is not accepted: use a positive timedelta, or None for no limit"),
        ({"backoff": 0.5}, r"backoff=0.5 is not accepted: use Exponential\(...\) or Stepped"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_any_call(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        retry(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"min_wait": -0.1},
        {"min_wait": 3.0},
        {"max_wait": float("nan")},
        {"max_wait": float("inf")},
        {"max_wait": 1e300},
    ],
)
def test_waits_of_oc000_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"min_wait=.*, max_wait=.* are not accepted: use seconds, with 0 <= min_wait <= max",
    ):
        retry_on_oc000(**given)


def test_oc000_without_parentheses_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match=r"parentheses: @retry_on_oc000\(\) or "):
        retry_on_oc000(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="max_attempts=0 is not accepted"):
        retry_on_oc000(stop_after=0)


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
            again = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=None)
            again.wait = tenacity.wait_none()
            return again(inner.sync)

    outer = Outer(lost())
    assert call(bench.retry(), outer) == "done"
    assert (outer.calls, inner.calls) == (2, 3)


@both
def test_an_observer_that_raises_does_not_disturb_the_call(
    call: Call, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def tell(self, fact: Fact) -> None:
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
    facts = (*bench.recorder.of(RetryScheduled), *bench.recorder.of(Recovered))
    assert [fact.context for fact in facts] == [{"event_id": "e-1"}] * 3


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
    with pytest.raises(ConnectionResetError):
        bench.on_oc000(stop_after=1)(iter([lost()]).__next__ and _raise_lost)()
    assert bench.on_oc000()(dict)(a=1) == {"a": 1}


def _raise_lost() -> None:
    raise lost()


def test_the_name_is_that_of_the_function_or_the_one_given(bench: Bench) -> None:
    for decorate, name in ((bench.retry(), "Failing.sync"), (bench.retry(name="mine"), "mine")):
        call_sync(decorate, Failing(lost()))
        assert bench.recorder.of(Recovered)[-1].call == name


async def test_no_garbage_is_left_that_holds_the_arguments(bench: Bench) -> None:
    class Connection: ...

    @bench.retry(max_attempts=2)
    async def use(connection: Connection) -> None:
        raise lost()

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ConnectionResetError) as raised:
            await use(Connection())
        raised.value.__traceback__ = None
        bench.recorder.facts.clear()
        del raised
        left = [thing for thing in gc.get_objects() if isinstance(thing, Connection)]
    finally:
        gc.enable()
    assert left == []


LINES = {
    "conflict": (logging.WARNING, "OC000 transaction conflict detected - retrying"),
    "retrying": (logging.INFO, "Retrying after 0.150s (attempt 1/5)"),
    "recovered": (logging.INFO, "Successfully completed after 2 attempts"),
}


@both
def test_success_is_logged_only_after_success(
    call: Call, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headway")
    call(bench.on_oc000(), Failing(RuntimeError("change conflicts (OC000)")))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        LINES["conflict"],
        LINES["retrying"],
        LINES["recovered"],
    ]


@both
def test_exhaustion_is_logged_once_at_the_end_and_no_error_before(
    call: Call, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headway")
    with pytest.raises(RuntimeError):
        call(bench.on_oc000(), Failing(*(RuntimeError("oc000") for _ in range(9))))
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors] == ["All retry attempts exhausted (5/5)"]
    assert caplog.records[-1] is errors[0]
    assert not any("Successfully" in record.getMessage() for record in caplog.records)


def test_awaitables_of_the_decorated_are_coroutines() -> None:
    @retry
    async def awaited() -> int:
        return 5

    pending: Awaitable[int] = awaited()
    assert asyncio.iscoroutine(pending)
    pending.close()
