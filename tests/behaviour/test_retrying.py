"""Retrying calls, sync and async, on virtual time."""

import asyncio
import contextlib
import functools
import gc
import inspect
import logging
import sys
import traceback
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from headway import (
    ConfigurationError,
    DocumentNotFoundError,
    retry,
    retry_on_oc000,
)
from headway.facts import Fact, GaveUp, Recovered, RetryScheduled
from headway.retrying import (
    DEFAULT_CLASSIFIER,
    Exponential,
    NoJitter,
    Reason,
    Stepped,
    Verdict,
    rules_for,
)
from headway.testing.chance import Fixed, Seeded
from headway.testing.clock import VirtualClock
from headway.testing.facts import Recorder

TENTH = timedelta(milliseconds=100)
DOUBLING = Exponential(base=TENTH, cap=timedelta(seconds=10), jitter=NoJitter())
AT_ONCE = Stepped(steps=(timedelta(),))

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Empty(Recorder):
    """An observer that counts as false, and is told all the same."""

    def __len__(self) -> int:
        return 0


class Bench:
    """A retry whose time, chance and facts the test holds in its hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.recorder = Empty()
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

    @property
    def milliseconds(self) -> list[float]:
        return [wait / timedelta(milliseconds=1) for wait in self.clock.waits]


@pytest.fixture
def bench() -> Bench:
    return Bench()


class Failing:
    """Fails as told, then answers; counts its calls."""

    def __init__(self, *failures: BaseException) -> None:
        self._failures = list(failures)
        self.calls = 0

    def sync(self, *_args: object, **_kwargs: object) -> str:
        self.calls += 1
        if self._failures:
            raise self._failures.pop(0)
        return "done"

    async def awaited(self, *args: object, **kwargs: object) -> str:
        await asyncio.sleep(0)
        return self.sync(*args, **kwargs)


def lost(times: int = 1) -> list[BaseException]:
    return [ConnectionResetError("lost") for _ in range(times)]


Call = Callable[[Decorator, Failing], Any]


def call_sync(decorate: Decorator, failing: Failing) -> Any:
    return decorate(failing.sync)()


def call_async(decorate: Decorator, failing: Failing) -> Any:
    async def main() -> Any:
        return await decorate(failing.awaited)()

    return asyncio.run(main())


both = pytest.mark.parametrize("call", [call_sync, call_async], ids=["sync", "async"])


@both
def test_a_call_recovers_after_the_waits_of_its_backoff_and_each_failure_is_told(
    call: Call, bench: Bench
) -> None:
    errors = [*lost(), TimeoutError(), *lost()]
    failing = Failing(*errors)
    assert call(bench.retry(name="store"), failing) == "done"
    assert failing.calls == 4
    assert bench.clock.waits == [TENTH, 2 * TENTH, 4 * TENTH]
    assert bench.kinds == [RetryScheduled] * 3 + [Recovered]
    told = bench.recorder.of(RetryScheduled)
    assert [fact.failure.error for fact in told] == errors
    assert [fact.failure.attempt for fact in told] == [1, 2, 3]
    assert [fact.delay for fact in told] == bench.clock.waits
    assert {fact.max_attempts for fact in told} == {5}
    assert told[1].failure.at - told[0].failure.at == TENTH
    assert told[0].failure.diagnosis.rule == "python.connection"
    (recovered,) = bench.recorder.of(Recovered)
    assert (recovered.call, recovered.attempts) == ("store", 4)
    assert recovered.elapsed == 7 * TENTH


@both
@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        (lost(3), Reason.MAX_ATTEMPTS_EXCEEDED),
        ([TypeError("wrong")], Reason.NON_RETRYABLE),
        ([*lost(), TypeError("wrong")], Reason.NON_RETRYABLE),
    ],
    ids=["exhausted", "permanent", "permanent later"],
)
def test_the_last_exception_itself_is_raised_with_a_note_and_giving_up_is_told_once(
    call: Call, bench: Bench, errors: list[BaseException], reason: Reason
) -> None:
    *before, last = (type(error)(*error.args) for error in errors)
    failing = Failing(*before, last)
    with pytest.raises(type(last)) as raised:
        call(bench.retry(max_attempts=3), failing)
    assert raised.value is last
    assert raised.value.__cause__ is None
    (note,) = raised.value.__notes__
    assert f"attempt {len(errors)} of 3 ({reason})" in note
    assert not any(hasattr(error, "__notes__") for error in before)
    assert failing.calls == len(errors)
    assert bench.kinds == [RetryScheduled] * len(before) + [GaveUp]
    (gave_up,) = bench.recorder.of(GaveUp)
    assert (gave_up.reason, gave_up.failure.attempt) == (reason, len(errors))


@both
@pytest.mark.parametrize("attempts", [1, 2])
def test_the_traceback_reaches_the_line_that_raised(
    call: Call, bench: Bench, attempts: int
) -> None:
    with pytest.raises(ConnectionResetError) as raised:
        call(bench.retry(max_attempts=attempts), Failing(*lost(2)))
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert frames[-1].name == "sync"
    assert "raise self._failures.pop(0)" in str(frames[-1].line)


@both
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_stops_a_program_is_neither_retried_nor_told(
    call: Call, bench: Bench, attempt: int, stop: type[BaseException]
) -> None:
    failing = Failing(*lost(attempt - 1), stop())
    with pytest.raises(stop):
        call(bench.retry(), failing)
    assert failing.calls == attempt
    assert bench.kinds == [RetryScheduled] * (attempt - 1)


class Endless(VirtualClock):
    def __init__(self) -> None:
        super().__init__()
        self.waiting = asyncio.Event()

    async def wait(self, delay: timedelta) -> None:
        self.waiting.set()
        await asyncio.Event().wait()


async def test_a_cancelled_attempt_or_wait_makes_no_other_attempt() -> None:
    clock, recorder, calls = Endless(), Recorder(), 0

    @retry(clock=clock, observer=recorder)
    async def call(*, fails: bool) -> None:
        nonlocal calls
        calls += 1
        if fails:
            raise ConnectionResetError
        await clock.wait(TENTH)

    for fails in (False, True):
        clock.waiting.clear()
        task = asyncio.create_task(call(fails=fails))
        await clock.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert calls == 2
    assert [type(fact) for fact in recorder.facts] == [RetryScheduled]


@both
def test_the_ttl_ends_retrying(call: Call, bench: Bench) -> None:
    with pytest.raises(ConnectionResetError):
        call(bench.retry(max_attempts=99, ttl=timedelta(seconds=1)), Failing(*lost(99)))
    assert bench.clock.waits == [TENTH, 2 * TENTH, 4 * TENTH]  # the next wait would end at 1.5 s
    assert [fact.reason for fact in bench.recorder.of(GaveUp)] == [Reason.TTL_EXCEEDED]


def test_the_defaults_are_five_attempts_with_full_jitter_on_doubling_waits(bench: Bench) -> None:
    failing = Failing(*lost(9))
    with pytest.raises(ConnectionResetError):
        retry(clock=bench.clock, chance=Seeded(1))(failing.sync)()
    assert failing.calls == 5
    assert len(bench.clock.waits) == 4
    for count, wait in enumerate(bench.clock.waits):
        assert timedelta() <= wait <= TENTH * 2**count


@both
@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ({}, [150, 250, 450, 850]),
        ({"stop_after": 4, "min_wait": 0.2, "max_wait": 0.3}, [250, 300, 300]),
    ],
)
def test_the_schedule_of_oc000_is_the_documented_one(
    call: Call, bench: Bench, given: dict[str, Any], waits: list[float]
) -> None:
    with pytest.raises(ConnectionResetError):
        call(bench.on_oc000(**given), Failing(*lost(9)))
    assert bench.milliseconds == waits


def test_oc000_retries_conflicts_and_lost_connections_and_nothing_else(bench: Bench) -> None:
    conflict = RuntimeError("change conflicts with another transaction (OC000)")
    assert call_sync(bench.on_oc000(), Failing(conflict, *lost())) == "done"
    for error in (RuntimeError("strange"), DocumentNotFoundError("m"), ValueError("connection")):
        failing = Failing(error)
        with pytest.raises(type(error)):
            call_sync(bench.on_oc000(), failing)
        assert failing.calls == 1


async def test_a_retried_function_may_call_itself(bench: Bench) -> None:
    failed: set[int] = set()

    @bench.retry()
    async def down(depth: int) -> int:
        below: int = await down(depth - 1) + 1 if depth else 0
        if depth not in failed:
            failed.add(depth)
            raise ConnectionResetError
        return below

    assert await down(3) == 3
    # Each level fails once, and each success is that of one call.
    assert [fact.attempts for fact in bench.recorder.of(Recovered)] == [2] * 4


def test_threads_that_share_a_function_do_not_disturb_one_another(bench: Bench) -> None:
    calls: dict[int, int] = dict.fromkeys(range(8), 0)

    @bench.retry(max_attempts=50)
    def fail(caller: int) -> int:
        calls[caller] += 1
        if calls[caller] <= caller * 3:
            raise ConnectionResetError(caller)
        return caller

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(fail, calls)) == list(calls)
    finally:
        sys.setswitchinterval(interval)
    assert calls == {caller: caller * 3 + 1 for caller in range(8)}
    told: dict[object, list[int]] = {}
    for fact in bench.recorder.of(RetryScheduled):
        told.setdefault(fact.failure.error.args[0], []).append(fact.failure.attempt)
    assert told == {caller: list(range(1, caller * 3 + 1)) for caller in range(1, 8)}


@both
def test_an_observer_that_raises_does_not_disturb_the_call(
    call: Call, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def tell(self, _fact: Fact) -> None:
            raise RuntimeError("deaf")

    assert call(bench.retry(observer=Broken()), Failing(*lost())) == "done"
    with pytest.raises(TypeError):
        call(bench.retry(observer=Broken()), Failing(TypeError()))
    reports = [record for record in caplog.records if "observer" in record.getMessage()]
    assert len(reports) == 3
    assert all(record.exc_info for record in reports)


@both
def test_the_context_is_made_once_and_only_after_a_failure(call: Call, bench: Bench) -> None:
    made: list[object] = []

    def context(*args: object, **kwargs: object) -> dict[str, str]:
        made.append((args, kwargs))
        if len(made) > 1:
            raise RuntimeError("no context")
        return {"event_id": "e-1"}

    decorate = bench.retry(context=context)
    assert call(decorate, Failing()) == "done"
    assert (made, bench.recorder.facts, bench.clock.waits) == ([], [], [])
    call(decorate, Failing(*lost(2)))
    assert made == [((), {})]
    contexts = [getattr(fact, "context", None) for fact in bench.recorder.facts]
    assert contexts == [{"event_id": "e-1"}] * 3
    with pytest.raises(TypeError, match="wrong"):
        call(decorate, Failing(TypeError("wrong")))
    assert [fact.context for fact in bench.recorder.of(GaveUp)] == [{}]


def test_oc000_takes_the_context_from_arguments_of_known_names(bench: Bench) -> None:
    @bench.on_oc000(stop_after=1)
    def store(event: object, event_id: str, transaction_id: int = 0, *, other: str = "") -> None:
        raise ConnectionResetError

    event = SimpleNamespace(event_id="e-2", event_type="payment", body=b"...")
    named = {"event_id": "e-3", "event_name": "paid", "body": "..."}
    for args, kwargs, context in (
        ((None, "e-1"), {}, {"event_id": "e-1"}),
        ((None,), {"event_id": "e-1", "other": "x"}, {"event_id": "e-1"}),
        (
            (event, "e-1", 7),
            {},
            {"event_id": "e-1", "event_type": "payment", "transaction_id": "7"},
        ),
        ((named, "e-1"), {}, {"event_id": "e-1", "event_name": "paid"}),
    ):
        with pytest.raises(ConnectionResetError):
            store(*args, **kwargs)
        assert bench.recorder.of(GaveUp)[-1].context == context
    with pytest.raises(TypeError, match=r"store\(\) missing 2 required positional arguments"):
        store()
    assert bench.on_oc000()(dict)(a=1) == {"a": 1}  # it has no signature


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("is_async", [False, True])
async def test_no_garbage_is_left_that_holds_what_the_call_used(
    bench: Bench, failures: int, *, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("headway"), "disabled", True)  # pytest keeps the records
    failing = Failing(*lost(failures))
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


def test_an_expected_exception_is_an_answer_and_no_failure(bench: Bench) -> None:
    failing = Failing(TimeoutError(), LookupError("not on Sundays"))
    with pytest.raises(LookupError) as caught:
        call_sync(bench.retry(expected=LookupError), failing)
    assert failing.calls == 2
    assert bench.kinds == [RetryScheduled]
    assert not hasattr(caught.value, "__notes__")


# What can be retried


class Service(Failing):
    @retry(backoff=AT_ONCE)
    def method(self) -> str:
        return self.sync()

    @retry(backoff=AT_ONCE)
    async def async_method(self) -> str:
        return await self.awaited()

    @classmethod
    @retry
    def of_class(cls) -> str:
        return cls.__name__

    async def __call__(self) -> str:
        return await self.awaited()


async def test_methods_and_callables_of_every_kind_can_be_retried(bench: Bench) -> None:
    service, other = Service(*lost()), Service(*lost())
    assert service.method() == "done"
    assert (service.calls, other.calls) == (2, 0)
    assert await other.async_method() == "done"
    assert Service.of_class() == service.of_class() == "Service"
    for decorated in (
        functools.partial(functools.partial(Failing(*lost()).awaited)),
        Service(*lost()),
        functools.partial(Service(*lost())),
    ):
        assert await bench.retry()(decorated)() == "done"
    assert bench.retry()(functools.partial(Failing(*lost()).sync, 1, two=2))() == "done"
    assert bench.kinds == [RetryScheduled, Recovered] * 4
    assert bench.recorder.of(Recovered)[-1].call == "Failing.sync"


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
    ("thing", "decisive"),
    [
        (generator, "generator"),
        (async_generator, "generator"),
        (functools.partial(generator), "generator"),
        (classmethod(print), "@classmethod above"),
        (staticmethod(print), "@staticmethod above"),
        (5, "5"),
        ("store", "'store'"),
        (None, "None"),
    ],
)
def test_what_cannot_be_retried_is_refused(thing: Any, decisive: str) -> None:
    for decorate in (retry(), retry_on_oc000()):
        with pytest.raises(ConfigurationError, match=decisive):
            decorate(thing)
    with pytest.raises(ConfigurationError, match=r"@retry_on_oc000\(\)"):
        retry_on_oc000(lambda: None)  # type: ignore[arg-type]


# Settings


OWN = DEFAULT_CLASSIFIER.before([rules_for((TypeError,), Verdict.TRANSIENT)])


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("wrapped")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "on", "calls"),
    [
        (KeyError(), LookupError, 2),
        (ConnectionResetError(), LookupError, 1),
        (ValueError(), (KeyError, ValueError), 2),
        (ConnectionResetError(), (KeyError, ValueError), 1),
        (wrapped(KeyError()), KeyError, 2),
        (TypeError(), OWN, 2),
        (ValueError(), OWN, 1),
    ],
)
def test_on_names_the_exceptions_to_retry_and_makes_all_others_permanent(
    bench: Bench, error: Exception, on: Any, calls: int
) -> None:
    failing = Failing(error)
    with contextlib.suppress(type(error)):
        call_sync(bench.retry(on=on), failing)
    assert failing.calls == calls


@pytest.mark.parametrize(
    ("decorator", "name", "value"),
    [
        *((retry, "on", on) for on in ((), 5, "ConnectionError", (ConnectionError, "x"))),
        *((retry, "on", on) for on in (KeyboardInterrupt, BaseException)),
        (retry, "max_attempts", 0),
        (retry, "max_attempts", "5"),
        (retry, "ttl", timedelta()),
        (retry, "ttl", 60),
        (retry, "backoff", 0.5),
        (retry_on_oc000, "min_wait", -0.1),
        (retry_on_oc000, "min_wait", 3.0),
        *((retry_on_oc000, "max_wait", wait) for wait in (float("nan"), float("inf"), 1e300)),
    ],
)
def test_settings_that_cannot_work_are_refused_before_any_call(
    decorator: Callable[..., Any], name: str, value: Any
) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}="):
        decorator(**{name: value})
