"""In-process retry: what a call costs that succeeds, and one that succeeds at its second attempt.

Sleeping is stubbed out for everybody, so that only the machinery is measured. Logging is at its
default level for everybody; stamina's and our own log lines are formatted into a null handler in
the rows that say so.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import backoff
import failsafe
import opnieuw
import stamina
import tenacity

import headway
from benchmarks.measure import Table, interleave, per_call
from headway.retrying import Stepped

CALLS = 20_000
RETRIED_CALLS = 2_000

Function = Callable[[], int]
Coroutines = Callable[[], Awaitable[int]]


class FlakyError(ConnectionError):
    """Fails at every first attempt."""


class Sometimes:
    """A function that fails at every odd call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls & 1:
            raise FlakyError
        return 1


def measure(rounds: int) -> list[Table]:
    logging.getLogger("headway").setLevel(logging.ERROR)
    logging.getLogger("stamina").setLevel(logging.ERROR)
    logging.getLogger("backoff").setLevel(logging.ERROR)
    real_sleep, real_async_sleep = time.sleep, asyncio.sleep
    time.sleep = lambda _seconds: None
    asyncio.sleep = _no_sleep  # type: ignore[assignment]
    try:
        return [
            _sync_success(rounds),
            _async_success(rounds),
            _sync_retried(rounds),
            _async_retried(rounds),
        ]
    finally:
        time.sleep, asyncio.sleep = real_sleep, real_async_sleep


def _sync_success(rounds: int) -> Table:
    def succeed() -> int:
        return 1

    table = _compare_sync("sync call that succeeds", _wrapped(succeed), CALLS, rounds)
    table.goal("headway to the hand-written loop", table.ratio("headway", "hand-written"), 2.0)
    _ahead_of_peers(table)
    return table


def _async_success(rounds: int) -> Table:
    async def succeed() -> int:
        return 1

    table = _compare_async("async call that succeeds", _wrapped_async(succeed), CALLS, rounds)
    table.goal("headway to the hand-written loop", table.ratio("headway", "hand-written"), 2.0)
    _ahead_of_peers(table)
    return table


def _sync_retried(rounds: int) -> Table:
    def flaky() -> Function:
        sometimes = Sometimes()

        def function() -> int:
            return sometimes()

        return function

    wrapped = {name: _wrapped(flaky())[name] for name in _wrapped(flaky())}
    table = _compare_sync("sync call, one retry", wrapped, RETRIED_CALLS, rounds)
    table.goal("headway to tenacity", table.ratio("headway", "tenacity"), 1.25)
    return table


def _async_retried(rounds: int) -> Table:
    def flaky() -> Callable[[], Coroutine[Any, Any, int]]:
        sometimes = Sometimes()

        async def function() -> int:
            return sometimes()

        return function

    wrapped = {name: _wrapped_async(flaky())[name] for name in _wrapped_async(flaky())}
    table = _compare_async("async call, one retry", wrapped, RETRIED_CALLS, rounds)
    table.goal("headway to tenacity", table.ratio("headway", "tenacity"), 1.25)
    return table


def _wrapped(function: Function) -> dict[str, Function]:
    return {
        "hand-written": _hand_written(function),
        "opnieuw": opnieuw.retry(**_OPNIEUW)(function),
        **_wrapped_alike(function),
    }


def _wrapped_async(function: Callable[[], Coroutine[Any, Any, int]]) -> dict[str, Coroutines]:
    policy = failsafe.RetryPolicy(allowed_retries=4, retriable_exceptions=[ConnectionError])
    pyfailsafe = failsafe.Failsafe(retry_policy=policy)
    return {
        "hand-written": _hand_written_async(function),
        "opnieuw": opnieuw.retry_async(**_OPNIEUW)(function),
        "pyfailsafe": lambda: pyfailsafe.run(function),
        **_wrapped_alike(function),
    }


_OPNIEUW: dict[str, Any] = {
    "retry_on_exceptions": ConnectionError,
    "max_calls_total": 5,
    "retry_window_after_first_call_in_seconds": 1,
}


def _wrapped_alike(function: Any) -> dict[str, Any]:
    """Wrap by those who take functions and coroutine functions alike."""
    return {
        "bare": function,
        "headway": headway.retry(backoff=_no_wait())(function),
        "headway on=": headway.retry(on=FlakyError, backoff=_no_wait())(function),
        "tenacity": tenacity.retry(
            stop=tenacity.stop_after_attempt(5),
            retry=tenacity.retry_if_exception_type(ConnectionError),
        )(function),
        "stamina": stamina.retry(
            on=ConnectionError, attempts=5, wait_initial=0, wait_max=0, wait_jitter=0
        )(function),
        "backoff": backoff.on_exception(backoff.constant, ConnectionError, max_tries=5, interval=0)(
            function
        ),
    }


def _hand_written(function: Function) -> Function:
    def call(*args: Any, **kwargs: Any) -> int:
        for attempt in range(5):
            try:
                return function(*args, **kwargs)
            except ConnectionError:
                if attempt == 4:
                    raise
                time.sleep(0)
        raise AssertionError

    return call


def _hand_written_async(function: Coroutines) -> Coroutines:
    async def call(*args: Any, **kwargs: Any) -> int:
        for attempt in range(5):
            try:
                return await function(*args, **kwargs)
            except ConnectionError:
                if attempt == 4:
                    raise
                await asyncio.sleep(0)
        raise AssertionError

    return call


def _compare_sync(title: str, wrapped: dict[str, Function], calls: int, rounds: int) -> Table:
    def timed(function: Function) -> Callable[[], float]:
        def loop(turns: int) -> None:
            for _ in range(turns):
                function()

        return lambda: per_call(loop, calls)

    return _compare(title, {name: timed(call) for name, call in wrapped.items()}, rounds)


def _compare_async(title: str, wrapped: dict[str, Coroutines], calls: int, rounds: int) -> Table:
    def timed(function: Coroutines) -> Callable[[], float]:
        async def repeat(turns: int) -> None:
            for _ in range(turns):
                await function()

        return lambda: per_call(lambda turns: asyncio.run(repeat(turns)), calls)

    return _compare(title, {name: timed(call) for name, call in wrapped.items()}, rounds)


def _compare(title: str, timed: dict[str, Callable[[], float]], rounds: int) -> Table:
    if "retry" in title:
        del timed["bare"]  # it does not survive a failure
    return interleave(title, timed, against="hand-written", rounds=rounds)


def _ahead_of_peers(table: Table) -> None:
    for peer in ("tenacity", "stamina", "backoff", "opnieuw", "pyfailsafe"):
        if peer in table.rows:
            table.goal(f"headway to {peer}", table.ratio("headway", peer), 1.0)


def _no_wait() -> Stepped:
    return Stepped(steps=(timedelta(),))


async def _no_sleep(_seconds: float, result: Any = None) -> Any:
    return result
