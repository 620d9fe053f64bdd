"""Say the facts of events as log lines.

Keys, event types and messages come from outside, so they are shown as one line whatever is in them,
in the text and in the fields alike: not every formatter escapes.
"""

import logging
import math
import time
from dataclasses import dataclass
from typing import Any, assert_never

from headway.adapters.logs import states
from headway.adapters.logs.durations import short
from headway.core.facts import (
    DeadLettered,
    DocumentsSkipped,
    DuplicatesRecognised,
    EventFact,
    EventParked,
    EventRecovered,
    EventRetryScheduled,
    FloodChanged,
    HealthChanged,
    LeaseLost,
    Processed,
    ReachChanged,
    Reached,
    SuspectBegun,
)
from headway.core.failure import Failure, Verdict, words
from headway.core.secrets import hidden
from headway.core.showing import shown
from headway.core.traces import trace

_EVERY = 10.0
"""Seconds between two lines about the same type of event."""
_NEAR = 0.8
"""The part of all retries, or of the TTL, from which on somebody should know."""

_Keyed = (
    EventRetryScheduled | EventRecovered | DeadLettered | EventParked | SuspectBegun | LeaseLost
)


@dataclass(slots=True)
class _Tally:
    """What was processed since it was last said."""

    count: int = 0
    seconds: float = 0.0
    said: float = -math.inf


class EventLines:
    """Writes the lines of events to one logger."""

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger
        self._tallies: dict[tuple[str, str], _Tally] = {}

    def tell(self, fact: EventFact) -> None:  # noqa: C901, PLR0912 (a case for each fact)
        match fact:
            case Processed():
                self._processed(fact)
            case DuplicatesRecognised() | DocumentsSkipped() | EventParked():
                if self._log.isEnabledFor(logging.DEBUG):
                    self._in_passing(fact)
            case EventRetryScheduled():
                self._retrying(fact)
            case EventRecovered():
                self._recovered(fact)
            case DeadLettered():
                self._dead_lettered(fact)
            case HealthChanged():
                states.health(self._log, fact)
            case FloodChanged():
                states.flood(self._log, fact)
            case Reached():
                pass  # of that there is a gauge; the log would say it every few seconds
            case ReachChanged():
                states.reach(self._log, fact)
            case SuspectBegun():
                self._log.warning(
                    "Event came back %d times because its worker was gone, and now runs alone; "
                    "idempotency key: %s",
                    fact.returns,
                    shown(fact.idempotency_key),
                    extra=_fields(fact) | {"returns": fact.returns},
                )
            case LeaseLost():
                self._log.warning(
                    "Event finished too late, so nothing of it took effect: it belongs to another "
                    "worker by now; idempotency key: %s",
                    shown(fact.idempotency_key),
                    extra=_fields(fact),
                )
            case _:
                assert_never(fact)

    def _processed(self, fact: Processed) -> None:
        """Say at once that something was done, and then not more often than every few seconds."""
        kind = (fact.service, fact.event_type)
        tally = self._tallies.setdefault(kind, _Tally())
        tally.count += len(fact.seconds)
        tally.seconds += sum(fact.seconds)
        now = time.monotonic()
        if now - tally.said < _EVERY:
            return
        self._log.info(
            "Processed %d items in %.2fs",
            tally.count,
            tally.seconds,
            extra={
                "service": fact.service,
                "event_type": shown(fact.event_type),
                "count": tally.count,
                "duration": round(tally.seconds, 3),
            },
        )
        self._tallies[kind] = _Tally(said=now)

    def _in_passing(self, fact: DuplicatesRecognised | DocumentsSkipped | EventParked) -> None:
        of_type = shown(fact.event_type)
        fields: dict[str, Any] = {"service": fact.service, "event_type": of_type}
        match fact:
            case DuplicatesRecognised():
                line = f"Already {fact.why}, skipping {fact.count} {of_type}"
                fields |= {"count": fact.count, "why": fact.why}
            case DocumentsSkipped():
                line = f"Already there, skipping {fact.count} documents of {of_type}"
                fields |= {"count": fact.count}
            case EventParked():
                line = f"Parked one {of_type} until {fact.rule} is over"
                fields = _fields(fact) | {"rule": fact.rule}
        self._log.debug("%s", line, extra=fields)

    def _retrying(self, fact: EventRetryScheduled) -> None:
        if not self._log.isEnabledFor(logging.ERROR):
            return
        failure, seconds = fact.failure, round(fact.delay.total_seconds(), 3)
        key = shown(fact.idempotency_key)
        fields = _fields(fact) | {
            **_of_failure(failure),
            "retry": fact.retry,
            "max_retries": fact.max_retries,
            "wait_time": seconds,
        }
        # A document that is not there yet is a race, which is no error of anybody.
        if failure.diagnosis.verdict is not Verdict.NOT_YET:
            self._error(
                "Operation failed (attempt %d/%d): %s",
                (fact.retry, fact.max_retries + 1, _described(failure.error)),
                fields,
                failure,
            )
            self._log.info("Retrying in %g seconds...", seconds, extra=fields)
        self._log.info(
            "Retry attempt %d/%d for event with idempotency key: %s",
            fact.retry,
            fact.max_retries,
            key,
            extra=fields,
        )
        if fact.retry >= fact.max_retries * _NEAR:
            self._log.warning(
                "Approaching max attempts (retry %d/%d) for event with idempotency key: %s",
                fact.retry,
                fact.max_retries,
                key,
                extra=fields,
            )
        age_then = fact.age + fact.delay
        if fact.ttl is not None and age_then >= fact.ttl * _NEAR:
            self._log.warning(
                "Approaching TTL (%s of %s) for event with idempotency key: %s",
                short(age_then),
                short(fact.ttl),
                key,
                extra=fields,
            )

    def _recovered(self, fact: EventRecovered) -> None:
        seconds = fact.elapsed.total_seconds()
        self._log.info(
            "Event processed successfully after %d retry attempts (total latency: %.2fs)",
            fact.retries,
            seconds,
            extra=_fields(fact) | {"retry": fact.retries, "latency": round(seconds, 3)},
        )

    def _dead_lettered(self, fact: DeadLettered) -> None:
        failure = fact.failure
        # To operators the count is of retries after the first call, as in RETRY_MAX_ATTEMPTS.
        retries = max(fact.attempts - 1, 0)
        self._error(
            # "after 0 attempts" would read as if it had never been tried.
            f"Event sent to DLQ {'after %d attempts' if retries else 'without a retry'} "
            "(reason: %s)",
            (retries, fact.reason) if retries else (fact.reason,),
            {
                **_fields(fact),
                **(_of_failure(failure) if failure else {}),
                "attempt": fact.attempts,
                "retry": retries,
                "reason": str(fact.reason),
                "error_type": shown(fact.error_type),
                "last_error": shown(fact.last_error),
                "letter_id": shown(fact.letter_id),
                "failed_queue": shown(fact.failed_queue),
                "latency": round(fact.elapsed.total_seconds(), 3),
            },
            failure,
        )

    def _error(
        self, line: str, values: tuple[Any, ...], fields: dict[str, Any], failure: Failure | None
    ) -> None:
        """Write an error with its traceback, whose text is mostly known: it came a moment ago."""
        if failure is None or not self._log.isEnabledFor(logging.ERROR):
            self._log.error(line, *values, extra=fields)
            return
        error = failure.error
        told = (type(error), error, error.__traceback__)
        record = self._log.makeRecord(
            self._log.name, logging.ERROR, __file__, 0, line, values, told, extra=fields
        )
        record.exc_text = trace(error).rstrip("\n")
        self._log.handle(record)


def _fields(fact: _Keyed) -> dict[str, Any]:
    return {
        "service": fact.service,
        "event_type": shown(fact.event_type),
        "idempotency_key": shown(fact.idempotency_key),
    }


def _of_failure(failure: Failure) -> dict[str, Any]:
    diagnosis = failure.diagnosis
    return {
        "attempt": failure.attempt,
        "error_type": type(failure.error).__name__,
        "sqlstate": diagnosis.code,
        "is_retryable": diagnosis.verdict is not Verdict.PERMANENT,
        "rule": diagnosis.rule,
    }


def _described(error: BaseException) -> str:
    return shown(hidden(f"{type(error).__name__}: {words(error)}"))
