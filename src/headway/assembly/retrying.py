"""`retry` and `retry_on_oc000`, bound to the real clock, chance and log."""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, ParamSpec, TypeVar, overload

from headway.adapters.logs.observer import LogObserver
from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.core.backoff import AddedJitter, Backoff, Exponential
from headway.core.catalogue import DEFAULT_CLASSIFIER, TRANSACTION_CLASSIFIER
from headway.core.classify import Classifier, rules_for
from headway.core.errors import ConfigurationError
from headway.core.failure import Diagnosis, Verdict
from headway.core.policy import RetryPolicy
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.observer import Observer
from headway.runtime.observers import Observers
from headway.runtime.retrying import ContextOf, Retrying

P = ParamSpec("P")
R = TypeVar("R")

Expected = type[Exception] | tuple[type[Exception], ...]
On = type[Exception] | tuple[type[Exception], ...] | Classifier

LOGS = LogObserver()

DEFAULT_BACKOFF = Exponential(base=timedelta(milliseconds=100), cap=timedelta(seconds=10))
DEFAULT_TTL = timedelta(seconds=60)
_DAY = 86_400
JITTER_OF_TRANSACTIONS = AddedJitter(timedelta(milliseconds=100))


@overload
def retry(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def retry(
    *,
    on: On | None = None,
    max_attempts: int = 5,
    backoff: Backoff = DEFAULT_BACKOFF,
    ttl: timedelta | None = DEFAULT_TTL,
    policy: RetryPolicy | None = None,
    name: str | None = None,
    context: ContextOf | None = None,
    expected: Expected = (),
    observer: Observer | None = None,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def retry(
    function: Callable[..., Any] | None = None,
    /,
    *,
    on: On | None = None,
    max_attempts: int = 5,
    backoff: Backoff = DEFAULT_BACKOFF,
    ttl: timedelta | None = DEFAULT_TTL,
    policy: RetryPolicy | None = None,
    name: str | None = None,
    context: ContextOf | None = None,
    expected: Expected = (),
    observer: Observer | None = None,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Any:
    """Retry a function or a coroutine function while its failures are not permanent.

    Args:
        function: What to wrap, where `@retry` is written without parentheses.
        on: Exception classes to retry, all others being permanent; or a Classifier of your own.
            Without it the catalogue decides: programming and validation errors are permanent,
            lost connections and conflicts are transient, and so is what no rule knows.
        max_attempts: Tries in all, the first one included.
        backoff: Waits between them; 100 ms, doubling, at most 10 s, with full jitter.
        ttl: No attempt begins later than this after the first failure. None: no limit.
        policy: All three in one, instead of them: `RetryConfig.from_mapping(os.environ).policy()`.
        name: What logs and metrics call it; the function's qualified name if not given.
        context: Makes fields for the log from the arguments of a call that failed.
        expected: Exceptions that are answers rather than failures, such as a refusal by a rule of
            the business: raised as they are, never retried, neither logged nor counted.
        observer: Hears the facts besides the log.
        clock: Tells the time and waits.
        chance: Rolls the dice for the jitter.

    The exception of the last attempt is raised, with a note that says why there was no other.
    """
    decorate = Retrying(
        policy=policy or RetryPolicy(max_attempts=max_attempts, backoff=backoff, ttl=ttl),
        classify=_classify(on),
        clock=clock,
        chance=chance,
        observer=told(observer),
        name=name,
        expected=exception_classes("expected", expected),
        **({"context": context} if context else {}),
    )
    return decorate if function is None else decorate(function)


def retry_on_oc000(
    stop_after: int = 5,
    min_wait: float = 0.1,
    max_wait: float = 2.0,
    *,
    name: str | None = None,
    context: ContextOf | None = None,
    expected: Expected = (),
    observer: Observer | None = None,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Retry a transaction that lost against another one, or lost its connection.

    Before retry k it waits `min(min_wait * 2**(k-1) + jitter, max_wait)` seconds, the jitter being
    0 to 100 ms. Everything else is raised at once. The function must open its own connection, so
    that every attempt has a fresh one; `run_transaction` does that and resolves lost commits too.

    Arguments named event_id, event_type, event_name or transaction_id appear in the log by
    themselves; `context` makes other fields.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return transaction_retrying(
            stop_after=stop_after,
            min_wait=min_wait,
            max_wait=max_wait,
            name=name,
            context=context or _named_arguments(function),
            expected=expected,
            observer=observer,
            clock=clock,
            chance=chance,
        )(function)

    if callable(stop_after):
        raise ConfigurationError(
            "retry_on_oc000 is written with parentheses: @retry_on_oc000() or "
            "@retry_on_oc000(stop_after=5, min_wait=0.1, max_wait=2.0)"
        )
    transaction_policy(stop_after, min_wait, max_wait)  # refuse bad values here, not at first use
    return decorate


def transaction_retrying(
    *,
    stop_after: int,
    min_wait: float,
    max_wait: float,
    name: str | None,
    context: ContextOf,
    expected: Expected,
    observer: Observer | None,
    clock: Clock,
    chance: Chance,
) -> Retrying:
    return Retrying(
        policy=transaction_policy(stop_after, min_wait, max_wait),
        classify=TRANSACTION_CLASSIFIER.classify,
        clock=clock,
        chance=chance,
        observer=told(observer),
        name=name,
        context=context,
        expected=exception_classes("expected", expected),
    )


def transaction_policy(stop_after: int, min_wait: float, max_wait: float) -> RetryPolicy:
    waits: tuple[object, ...] = (min_wait, max_wait)
    if not (
        all(isinstance(wait, int | float) for wait in waits) and 0 <= min_wait <= max_wait <= _DAY
    ):
        raise ConfigurationError(
            f"min_wait={min_wait!r}, max_wait={max_wait!r} are not accepted: "
            f"use seconds, with 0 <= min_wait <= max_wait <= {_DAY}"
        )
    return RetryPolicy(
        max_attempts=stop_after,
        backoff=Exponential(
            base=timedelta(seconds=min_wait),
            cap=timedelta(seconds=max_wait),
            jitter=JITTER_OF_TRANSACTIONS,
        ),
    )


def told(observer: Observer | None) -> Observer:
    return Observers(LOGS) if observer is None else Observers(LOGS, observer)


def _classify(on: On | None) -> Callable[[BaseException], Diagnosis]:
    match on:
        case None:
            return DEFAULT_CLASSIFIER.classify
        case Classifier():
            return on.classify
    kinds = exception_classes("on", on)
    if not kinds:
        raise ConfigurationError("on=() is not accepted: name exception classes, at least one")
    return Classifier(
        rules=(rules_for(kinds, Verdict.TRANSIENT),), unmatched=Verdict.PERMANENT
    ).classify


def exception_classes(name: str, given: object) -> tuple[type[Exception], ...]:
    """Take one class or several, or refuse what is none."""
    kinds = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise ConfigurationError(
            f"{name}={given!r} is not accepted: name exception classes, such as "
            f"{name}=ConnectionError"
        )
    return kinds


_KNOWN_ARGUMENTS = ("event_id", "event_type", "event_name", "transaction_id")


def _named_arguments(function: Callable[..., Any]) -> ContextOf:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return lambda *_args, **_kwargs: {}

    def context(*args: object, **kwargs: object) -> Mapping[str, str]:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:  # called wrongly, which is the error that the caller gets to see
            return {}
        event = given.get("event")
        of_event = event.get if isinstance(event, Mapping) else partial(getattr, event)
        found = {name: given.get(name, of_event(name, None)) for name in _KNOWN_ARGUMENTS}
        return {name: str(value) for name, value in found.items() if value is not None}

    return context
