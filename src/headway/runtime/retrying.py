"""Retry a call: the first attempt is a plain call, the rest are driven by tenacity.

A call that succeeds at once pays for one `try`. Only after a failure is an attempt machine made,
which is the same for functions and coroutine functions; the two drivers differ by their awaits.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar, cast

import tenacity
from tenacity import DoAttempt, DoSleep, RetryCallState

from headway.core.action import Action, DeadLetter, RetryLater
from headway.core.errors import ConfigurationError
from headway.core.facts import GaveUp, Recovered, RetryScheduled
from headway.core.failure import Diagnosis, Failure, History
from headway.core.policy import RetryPolicy, decide
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.observer import Observer

P = ParamSpec("P")
R = TypeVar("R")

ContextOf = Callable[..., Mapping[str, str]]
"""Makes the context of the facts from the arguments of the call; asked only after a failure."""


def _no_context(*_args: object, **_kwargs: object) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """Everything that a retried call needs besides the function itself."""

    policy: RetryPolicy
    classify: Callable[[BaseException], Diagnosis]
    clock: Clock
    chance: Chance
    observer: Observer
    name: str | None = None
    """What the facts call it; the function's qualified name if not given."""
    context: ContextOf = field(default=_no_context)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap a function or a coroutine function."""
        _refuse_generators(function)
        name = self.name or str(getattr(function, "__qualname__", type(function).__qualname__))
        if _is_async(function):
            return cast("Callable[P, R]", self._wrap_async(function, name))

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as raised:  # noqa: BLE001 (classified and decided on, never swallowed)
                error = raised
            return self._resume(name, error, functools.partial(function, *args, **kwargs))

        return call

    def _wrap_async(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except Exception as raised:  # noqa: BLE001 (classified and decided on, never swallowed)
                error = raised
            return await self._resume_async(
                name, error, functools.partial(function, *args, **kwargs)
            )

        return call

    def _resume(self, name: str, error: Exception, again: "functools.partial[R]") -> R:
        attempts = _Attempts(self, name, again)
        state = attempts.begun_with(error)
        while isinstance(do := attempts.iter(state), DoAttempt | DoSleep):
            if isinstance(do, DoSleep):
                state.prepare_for_next_attempt()
                if do:
                    self.clock.sleep(timedelta(seconds=do))
                continue
            try:
                state.set_result(again())
            except Exception as raised:  # noqa: BLE001 (the machine decides on it)
                state.set_exception((type(raised), raised, raised.__traceback__))
        attempts.tell_recovered()
        return cast("R", do)

    async def _resume_async(
        self, name: str, error: Exception, again: "functools.partial[Awaitable[Any]]"
    ) -> Any:
        attempts = _Attempts(self, name, again)
        state = attempts.begun_with(error)
        while isinstance(do := attempts.iter(state), DoAttempt | DoSleep):
            if isinstance(do, DoSleep):
                state.prepare_for_next_attempt()
                if do:
                    await self.clock.wait(timedelta(seconds=do))
                continue
            try:
                state.set_result(await again())
            except Exception as raised:  # noqa: BLE001 (the machine decides on it)
                state.set_exception((type(raised), raised, raised.__traceback__))
        attempts.tell_recovered()
        return do


class _Attempts(tenacity.BaseRetrying):
    """tenacity's machine for one call that failed, with our rule as its stop and its wait.

    One is made for each failing call: tenacity keeps the state of a call in the object.
    """

    def __init__(self, plan: Retrying, name: str, again: "functools.partial[Any]") -> None:
        super().__init__(
            retry=_failed, wait=self._decide, stop=self._is_over, before=_quiet, after=_quiet
        )
        self.reraise = True
        self._plan = plan
        self._call = name
        self._again = again
        self._context: Mapping[str, str] | None = None
        self._first_failed: datetime
        self._action: Action
        self._failure: Failure

    def __call__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("driven by Retrying, which made the first attempt itself")

    def begun_with(self, error: Exception) -> RetryCallState:
        """Record the first attempt, which was a plain call, and hand out tenacity's state."""
        self.begin()
        self._first_failed = self._plan.clock.now()
        state = RetryCallState(self, self._again.func, self._again.args, self._again.keywords)
        state.set_exception((type(error), error, error.__traceback__))
        return state

    def tell_recovered(self) -> None:
        plan = self._plan
        plan.observer.tell(
            Recovered(
                call=self._call,
                attempts=self._failure.attempt + 1,
                elapsed=plan.clock.now() - self._first_failed,
                context=self._context_of_call(),
            )
        )

    def _decide(self, state: RetryCallState) -> float:
        """Classify and decide; tenacity asks for the wait before it asks whether to stop."""
        plan = self._plan
        error = cast("BaseException", cast("tenacity.Future", state.outcome).exception())
        attempt = state.attempt_number
        now = plan.clock.now()
        diagnosis = plan.classify(error)
        self._failure = Failure(attempt=attempt, at=now, error=error, diagnosis=diagnosis)
        self._action = decide(
            plan.policy,
            History(attempts=attempt, first_seen=self._first_failed),
            diagnosis,
            now=now,
            draw=plan.chance.draw(),
        )
        return self._action.delay.total_seconds() if isinstance(self._action, RetryLater) else 0.0

    def _is_over(self, state: RetryCallState) -> bool:  # noqa: ARG002 (tenacity's signature)
        plan, failure = self._plan, self._failure
        match self._action:
            case RetryLater(delay=delay):
                plan.observer.tell(
                    RetryScheduled(
                        call=self._call,
                        failure=failure,
                        max_attempts=plan.policy.max_attempts,
                        delay=delay,
                        context=self._context_of_call(),
                    )
                )
                return False
            case DeadLetter(reason=reason):
                plan.observer.tell(
                    GaveUp(
                        call=self._call,
                        failure=failure,
                        max_attempts=plan.policy.max_attempts,
                        reason=reason,
                        context=self._context_of_call(),
                    )
                )
                failure.error.add_note(
                    f"headway gave up at attempt {failure.attempt} of "
                    f"{plan.policy.max_attempts} ({reason}): {failure.diagnosis.because}"
                )
                return True
            case action:
                raise AssertionError(f"a call in hand cannot be parked: {action!r}")

    def _context_of_call(self) -> Mapping[str, str]:
        if self._context is None:
            self._context = self._plan.context(*self._again.args, **self._again.keywords)
        return self._context


def _failed(state: RetryCallState) -> bool:
    return cast("tenacity.Future", state.outcome).failed


def _quiet(_state: RetryCallState) -> None:
    """Do nothing: facts are told by the machine itself."""


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (asked whether it is async, not callable)
    )


def _refuse_generators(function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{getattr(function, '__qualname__', function)!r} is a generator: what it already "
            "yielded cannot be taken back, so it cannot be retried; retry the function that "
            "makes one item, or collect the items in a list"
        )
