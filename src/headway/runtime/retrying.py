"""Retry a call: the first attempt is a plain call, the rest are driven by tenacity.

A call that succeeds at once pays for one `try`. Only after a failure is an attempt machine made,
which is the same for functions and coroutine functions; the two drivers differ by their awaits.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, cast

import tenacity
from tenacity import DoAttempt, DoSleep, RetryCallState

from headway.core.action import Action, DeadLetter, RetryLater
from headway.core.errors import ConfigurationError
from headway.core.facts import GaveUp, Recovered, RetryScheduled
from headway.core.failure import Diagnosis, Failure, History, note
from headway.core.policy import RetryPolicy, decide
from headway.core.showing import function_name
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
    expected: tuple[type[Exception], ...] = ()
    """Answers of the function that come as exceptions: raised as they are, and no failures."""

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap a function or a coroutine function."""
        _refuse_what_cannot_be_retried(function)
        name = self.name or function_name(function)
        if is_async(function):
            return cast("Callable[P, R]", self._wrap_async(function, name))

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as raised:  # decided on by the rule, and raised unless tried again
                attempts = _Attempts(self, name, function, args, kwargs)
                if not attempts.go_on_after(raised):
                    raise
            return cast("R", self._resume(attempts))

        call.__dict__[RETRIED] = True
        return call

    def _wrap_async(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except Exception as raised:  # decided on by the rule, and raised unless tried again
                attempts = _Attempts(self, name, function, args, kwargs)
                if not attempts.go_on_after(raised):
                    raise
            return await self._resume_async(attempts)

        call.__dict__[RETRIED] = True
        return call

    def _resume(self, attempts: "_Attempts") -> Any:
        step: Any = attempts.first_sleep()
        while isinstance(step, _STEPS):
            if isinstance(step, DoSleep):
                if step:
                    self.clock.sleep(timedelta(seconds=step))
            else:
                try:
                    attempts.set_result(attempts.again())
                except Exception as raised:  # decided on by the rule, as the first was
                    if not attempts.go_on_after(raised):
                        raise
                    attempts.set_exception((type(raised), raised, raised.__traceback__))
            step = attempts.next()
        attempts.tell_recovered()
        return step

    async def _resume_async(self, attempts: "_Attempts") -> Any:
        step: Any = attempts.first_sleep()
        while isinstance(step, _STEPS):
            if isinstance(step, DoSleep):
                if step:
                    await self.clock.wait(timedelta(seconds=step))
            else:
                try:
                    attempts.set_result(await attempts.again())
                except Exception as raised:  # decided on by the rule, as the first was
                    if not attempts.go_on_after(raised):
                        raise
                    attempts.set_exception((type(raised), raised, raised.__traceback__))
            step = attempts.next()
        attempts.tell_recovered()
        return step


RETRIED = "headway_retried"
"""Marks a function that is retried; a decorator around it copies the mark."""


class _Attempts(RetryCallState):
    """The attempts of one call that failed: tenacity's state of a call, with our decision in it."""

    def __init__(
        self,
        plan: Retrying,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(_TENACITY, function, args, kwargs)
        self._plan = plan
        self._call = name
        self._first_failed = plan.clock.now()
        self._context: Mapping[str, str] | None = None
        self.action: Action

    def first_sleep(self) -> DoSleep:
        """Begin where the plain first call ended: tenacity goes on from the second attempt."""
        _TENACITY.begin()
        self.prepare_for_next_attempt()
        return DoSleep(_delay(self))

    def next(self) -> Any:
        """Give tenacity's next step: attempt, sleep, or the result."""
        step = _TENACITY.iter(self)
        if isinstance(step, DoSleep):
            self.prepare_for_next_attempt()
        return step

    def again(self) -> Any:
        """Call the function as it was called before."""
        return cast("Callable[..., Any]", self.fn)(*self.args, **self.kwargs)

    def go_on_after(self, error: Exception) -> bool:
        """Decide what follows a failure and tell it; say whether there is another attempt."""
        plan, attempt, now = self._plan, self.attempt_number, self._plan.clock.now()
        if isinstance(error, plan.expected):
            return False
        diagnosis = plan.classify(error)
        failure = Failure(attempt=attempt, at=now, error=error, diagnosis=diagnosis)
        history = History(attempts=attempt, first_seen=self._first_failed)
        self.action = decide(plan.policy, history, diagnosis, now=now, draw=plan.chance.draw())
        match self.action:
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
                return True
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
                note(
                    error,
                    f"headway gave up at attempt {attempt} of {plan.policy.max_attempts} "
                    f"({reason}): {diagnosis.because}",
                )
                return False
            case parked:
                raise AssertionError(f"a call in hand cannot be parked: {parked!r}")

    def tell_recovered(self) -> None:
        plan = self._plan
        plan.observer.tell(
            Recovered(
                call=self._call,
                attempts=self.attempt_number,
                elapsed=plan.clock.now() - self._first_failed,
                context=self._context_of_call(),
            )
        )

    def _context_of_call(self) -> Mapping[str, str]:
        if self._context is None:
            try:
                self._context = self._plan.context(*self.args, **self.kwargs)
            except Exception:  # what the caller must see is the error of the call
                logging.getLogger("headway").exception("context of %s failed", self._call)
                self._context = {}
        return self._context


def _failed(attempts: RetryCallState) -> bool:
    return cast("tenacity.Future", attempts.outcome).failed


def _delay(attempts: RetryCallState) -> float:
    action = cast("_Attempts", attempts).action
    return action.delay.total_seconds() if isinstance(action, RetryLater) else 0.0


# One machine serves every call: what belongs to a call is in its `_Attempts`, and what tenacity
# notes in the machine itself (statistics) is kept for each thread and not used. It never stops by
# itself: the last exception is raised where it was caught, for tenacity's frames would hold it.
_TENACITY = tenacity.Retrying(retry=_failed, wait=_delay, stop=tenacity.stop_never)
_STEPS = (DoAttempt, DoSleep)


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether calling it gives a coroutine, also through partials and callable objects."""
    return any(map(inspect.iscoroutinefunction, _called(function)))


def _called(function: Callable[..., Any]) -> tuple[object, object]:
    """Give what runs when it is called: the function itself, or the method of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function, getattr(function, "__call__", None)  # noqa: B004 (asked what it is)


def _refuse_what_cannot_be_retried(function: Callable[..., Any]) -> None:
    if isinstance(function, classmethod | staticmethod):
        kind = type(function).__name__
        raise ConfigurationError(f"a {kind} cannot be retried: write @{kind} above the retry")
    if not callable(function):
        raise ConfigurationError(
            f"{function!r} cannot be retried: give a function, and settings by their names, such "
            "as max_attempts=5"
        )
    if any(map(_is_generator, _called(function))):
        raise ConfigurationError(
            f"{getattr(function, '__qualname__', function)!r} is a generator: what it already "
            "yielded cannot be taken back, so it cannot be retried; retry the function that "
            "makes one item, or collect the items in a list"
        )


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
