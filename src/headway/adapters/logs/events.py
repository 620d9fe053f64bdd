"""Say the facts of events as log lines.

Keys, event types and messages come from outside, so they are shown as one line whatever is in them,
in the text and in the fields alike: not every formatter escapes.
"""

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from headway.adapters.logs import states
from headway.adapters.logs.durations import short
from headway.adapters.logs.repeats import Line, Repeats, kind_of, raised_at
from headway.adapters.logs.writing import log_traceback
from headway.core.action import Reason
from headway.core.catalogue import is_known
from headway.core.errors import HeadwayError
from headway.core.facts import (
    DeadLettered,
    DocumentsMissing,
    DocumentsSkipped,
    DuplicatesRecognised,
    EventFact,
    EventHandedOn,
    EventParked,
    EventRecovered,
    EventRetryScheduled,
    EventsRouted,
    EventsUnrouted,
    EventsWaiting,
    FloodChanged,
    HealthChanged,
    LeaseLost,
    Processed,
    ReachChanged,
    Reached,
    SuspectBegun,
)
from headway.core.failure import Diagnosis, Failure, Verdict
from headway.core.showing import described, described_cause, shown

_Handled = EventRetryScheduled | EventRecovered | DeadLettered | DocumentsMissing
_NAMED = 3
"""Ids of missing documents that one line names."""
_EVERY = 10.0
"""Seconds between two lines about the same type of event."""
_HANDED_ON_EVERY = 60.0
_LINES = 10
"""About superseded events of one type, in that time."""
_NEAR = 0.8
"""The part of all retries, or of the TTL, from which on somebody should know."""


@dataclass(slots=True)
class _Tally:
    """What was processed since it was last said."""

    count: int = 0
    seconds: float = 0.0
    said: float = -math.inf
    lines: int = 0
    """Since then, where there may be several."""


class EventLines:
    """Writes the lines of events to one logger."""

    def __init__(self, logger: logging.Logger, repeats: Repeats) -> None:
        self._log = logger
        self._tallies: dict[tuple[str, ...], _Tally] = {}
        self._handed_on_tallies: dict[tuple[str, str], _Tally] = {}
        self._repeats = repeats
        self._unknown: set[str] = set()
        """Classes of errors that no rule knows, and that were named."""

    def tell(self, fact: EventFact) -> None:  # noqa: C901, PLR0912 (a case for each fact)
        match fact:
            case Processed():
                self._processed(fact)
            case DuplicatesRecognised(why="superseded"):
                self._superseded(fact)
            case EventsWaiting():
                states.waiting(self._log, fact)
            case DuplicatesRecognised():
                self._duplicates(fact)
            case DocumentsSkipped() | EventParked():
                if self._log.isEnabledFor(logging.DEBUG):
                    self._in_passing(fact)
            case DocumentsMissing():
                key = ("missing", fact.service, fact.event_type)
                if not self._repeats.leaves_out(key, lambda: _missing_line(fact)):
                    self._write(_missing_line(fact), {})
            case EventRetryScheduled():
                self._retrying(fact)
            case EventRecovered():
                self._recovered(fact)
            case DeadLettered():
                self._dead_lettered(fact)
            case EventHandedOn():
                self._handed_on(fact)
            case HealthChanged():
                states.health(self._log, fact)
            case FloodChanged():
                states.flood(self._log, fact)
            case EventsRouted():
                states.routed(self._log, fact)
            case EventsUnrouted():
                states.unrouted(self._log, fact)
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

    def _handed_on(self, fact: EventHandedOn) -> None:
        """Say it at once, and then once a minute: it is no fault, and an event comes again."""
        kind = (fact.service, fact.event_type)
        tally = self._handed_on_tallies.setdefault(kind, _Tally())
        tally.count += 1
        now = time.monotonic()
        if now - tally.said < _HANDED_ON_EVERY:
            return
        awaited = ", ".join(repr(each) for each in fact.awaited)
        self._log.info(
            "Version %r of %s cannot read %d %s, and leaves each to version %s: %s",
            fact.version,
            fact.service,
            tally.count,
            shown(fact.event_type),
            awaited,
            shown(fact.error),
            extra={
                "service": fact.service,
                "event_type": shown(fact.event_type),
                "version": fact.version,
                "awaited": awaited,
                "count": tally.count,
            },
        )
        self._handed_on_tallies[kind] = _Tally(said=now)

    def _superseded(self, fact: DuplicatesRecognised) -> None:
        """Name what was superseded; of many, name some and count the others."""
        kind = (fact.service, fact.event_type, fact.why)
        tally = self._tallies.setdefault(kind, _Tally())
        tally.count += fact.count
        now = time.monotonic()
        if now - tally.said >= _EVERY:
            tally.said, tally.lines = now, 0
        if tally.lines >= _LINES:
            return
        tally.lines += 1
        self._log.info(
            "Superseded: %d %s not run, because their documents are processed, given up or in the "
            "hands of a newer operation; idempotency key of the last: %s",
            tally.count,
            shown(fact.event_type),
            shown(fact.idempotency_key),
            extra={
                "service": fact.service,
                "event_type": shown(fact.event_type),
                "idempotency_key": shown(fact.idempotency_key),
                "count": tally.count,
                "why": fact.why,
            },
        )
        tally.count = 0

    def _duplicates(self, fact: DuplicatesRecognised) -> None:
        if not self._log.isEnabledFor(logging.INFO):
            return
        key = ("duplicate", fact.service, fact.event_type)
        if not self._repeats.leaves_out(key, lambda: _duplicates_line(fact)):
            fields = {"idempotency_key": shown(fact.idempotency_key), "count": fact.count}
            self._write(_duplicates_line(fact), fields)

    def _in_passing(self, fact: DocumentsSkipped | EventParked) -> None:
        of_type = shown(fact.event_type)
        fields: dict[str, Any] = {"service": fact.service, "event_type": of_type}
        match fact:
            case DocumentsSkipped():
                line = f"Already there, skipping {fact.count} documents of {of_type}"
                fields |= {"count": fact.count}
            case EventParked():
                line = f"Parked one {of_type} until {fact.rule} is over"
                fields = _fields(fact) | {"rule": fact.rule}
        self._log.debug("%s", line, extra=fields)

    def _retrying(self, fact: EventRetryScheduled) -> None:
        # A document that is not visible yet is a race, and no fault.
        is_fault = fact.failure.diagnosis.verdict is not Verdict.NOT_YET
        line = _failed_line if is_fault else _retry_line
        if not self._log.isEnabledFor(logging.WARNING if is_fault else logging.INFO):
            return
        if fact.failure.diagnosis.rule == "unmatched":
            self._name_unknown(fact.failure.diagnosis)
        key = ("retry", fact.service, fact.event_type, kind_of(fact.failure))
        if self._repeats.leaves_out(key, lambda: line(fact)):
            return
        seconds = round(fact.delay.total_seconds(), 3)
        fields = {
            "idempotency_key": shown(fact.idempotency_key),
            "attempt": fact.failure.attempt,
            "retry": fact.retry,
            "max_retries": fact.max_retries,
            "wait_time": seconds,
            "version": fact.version or None,
        }
        if is_fault:
            self._write(_failed_line(fact), fields)
            of_all = _of_failed(fact) | fields
            self._log.info("Retrying in %g seconds... %s", seconds, _raised(fact), extra=of_all)
        self._write(_retry_line(fact), fields)
        for warning in _warnings(fact):
            self._write(warning, fields)

    def _name_unknown(self, diagnosis: Diagnosis) -> None:
        """Say once in a process that no rule knows a class of errors, and the cure."""
        error, kind = diagnosis.found, type(diagnosis.found)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        if name in self._unknown or isinstance(error, HeadwayError) or is_known(error):
            return
        self._unknown.add(name)
        self._log.warning(
            "No rule matches %s, raised by %s: it is retried as %s. Raise headway.PermanentError "
            "(or a subclass) if a retry cannot help, or add a Rule.",
            shown(name),
            raised_at(error),
            diagnosis.verdict,
            extra={"error_type": shown(name), "rule": diagnosis.rule},
        )

    def _recovered(self, fact: EventRecovered) -> None:
        if not self._log.isEnabledFor(logging.INFO):
            return
        key = ("recovered", fact.service, fact.event_type)
        if not self._repeats.leaves_out(key, lambda: _recovered_line(fact)):
            fields = {"idempotency_key": shown(fact.idempotency_key), "retry": fact.retries}
            self._write(_recovered_line(fact), fields)

    def _dead_lettered(self, fact: DeadLettered) -> None:
        if not self._log.isEnabledFor(logging.ERROR):
            return
        # Types that no handler takes come from outside: any number of them is one kind.
        event_type = "" if fact.reason is Reason.UNROUTABLE else fact.event_type
        kind = kind_of(fact.failure) if fact.failure else fact.error_type
        key = ("dead", fact.service, event_type, fact.reason, kind)
        if self._repeats.leaves_out(key, lambda: _dead_line(fact)):
            return
        fields = {
            "idempotency_key": shown(fact.idempotency_key),
            "attempt": fact.attempts,
            "retry": max(fact.attempts - 1, 0),
            "letter_id": shown(fact.letter_id),
            "version": fact.version or None,
            "latency": round(fact.elapsed.total_seconds(), 3),
        }
        self._write(_dead_line(fact), fields, fact.failure)

    def _write(self, line: Line, fields: dict[str, Any], failure: Failure | None = None) -> None:
        if failure is None:
            self._log.log(line.level, line.text, *line.values, extra=line.fields | fields)
            return
        told = line.fields | fields
        log_traceback(
            self._log, line.level, line.text, line.values, error=failure.error, fields=told
        )


def _failed_line(fact: EventRetryScheduled) -> Line:
    error = described(fact.failure.error)
    values = (fact.retry, fact.max_retries + 1, error, _function(fact))
    text = "Operation failed (attempt %d/%d): %s, raised by %s"
    return Line(logging.WARNING, text, values, _of_failed(fact))


def _retry_line(fact: EventRetryScheduled) -> Line:
    values = (fact.retry, fact.max_retries, shown(fact.idempotency_key), _raised(fact))
    text = "Retry attempt %d/%d for event with idempotency key: %s; %s"
    return Line(logging.INFO, text, values, _of_failed(fact))


def _warnings(fact: EventRetryScheduled) -> Iterator[Line]:
    work, raised, fields = shown(fact.idempotency_key), _raised(fact), _of_failed(fact)
    if fact.retry >= fact.max_retries * _NEAR:
        text = "Approaching max attempts (retry %d/%d) for event with idempotency key: %s; %s"
        values: tuple[Any, ...] = (fact.retry, fact.max_retries, work, raised)
        yield Line(logging.WARNING, text, values, fields)
    age_then = fact.age + fact.delay
    if fact.ttl is not None and age_then >= fact.ttl * _NEAR:
        text = "Approaching TTL (%s of %s) for event with idempotency key: %s; %s"
        values = (short(age_then), short(fact.ttl), work, raised)
        yield Line(logging.WARNING, text, values, fields)


def _recovered_line(fact: EventRecovered) -> Line:
    seconds = fact.elapsed.total_seconds()
    text = "Event processed successfully after %d retry attempts (total latency: %.2fs): %s"
    fields = _of_type(fact) | {"latency": round(seconds, 3)}
    return Line(logging.INFO, text, (fact.retries, seconds, _function(fact)), fields)


def _missing_line(fact: DocumentsMissing) -> Line:
    ids = ", ".join(shown(each) for each in fact.ids[:_NAMED])
    rest = f" and {len(fact.ids) - _NAMED} more" if len(fact.ids) > _NAMED else ""
    text = (
        "%s succeeded, and %s%s got no status: not found in %s, which documents= names. Use "
        "require to wait for documents, or mend documents="
    )
    args = (_function(fact), ids, rest, shown(fact.collection))
    fields = _of_type(fact) | {"collection": shown(fact.collection)}
    return Line(logging.WARNING, text, args, fields)


def _duplicates_line(fact: DuplicatesRecognised) -> Line:
    text = (
        "Already done: %s does not run %d %s again, which came as a duplicate; idempotency key: %s"
    )
    of_type = shown(fact.event_type)
    values = (fact.service, fact.count, of_type, shown(fact.idempotency_key))
    fields = {"service": fact.service, "event_type": of_type, "why": fact.why}
    return Line(logging.INFO, text, values, fields)


def _dead_line(fact: DeadLettered) -> Line:
    # To operators the count is of retries after the first call, as in RETRY_MAX_ATTEMPTS.
    retries = max(fact.attempts - 1, 0)
    # "after 0 attempts" would read as if it had never been tried.
    tried = f"after {retries} attempts" if retries else "without a retry"
    why = _raised(fact) if fact.failure else f"{_function(fact)}: {shown(fact.last_error)}"
    fields = (_of_failed(fact) if fact.failure else _of_type(fact)) | {
        "reason": str(fact.reason),
        "error_type": shown(fact.error_type),
        "last_error": shown(fact.last_error),
        "failed_queue": shown(fact.failed_queue),
    }
    text = "Event sent to DLQ %s (reason: %s): %s"
    return Line(logging.ERROR, text, (tried, str(fact.reason), why), fields)


def _raised(fact: EventRetryScheduled | DeadLettered) -> str:
    assert fact.failure is not None  # noqa: S101 (the caller looked)
    return f"{_function(fact)} raised {described(fact.failure.error)}"


def _function(fact: _Handled) -> str:
    """Name a handler: service, function and event type."""
    name = f"{fact.service}.{fact.handler}" if fact.handler else fact.service
    return f"{name} ({shown(fact.event_type)})" if fact.event_type else name


def _of_type(fact: _Handled) -> dict[str, Any]:
    return {
        "service": fact.service,
        "event_type": shown(fact.event_type),
        "handler": fact.handler or None,
    }


def _of_failed(fact: EventRetryScheduled | DeadLettered) -> dict[str, Any]:
    failure = fact.failure
    assert failure is not None  # noqa: S101 (the caller looked)
    diagnosis = failure.diagnosis
    return {
        **_of_type(fact),
        "error_type": type(failure.error).__name__,
        "last_error": described(failure.error),
        "cause": described_cause(failure.error) or None,
        "sqlstate": diagnosis.code,
        "is_retryable": diagnosis.verdict is not Verdict.PERMANENT,
        "rule": diagnosis.rule,
    }


def _fields(fact: EventParked | SuspectBegun | LeaseLost) -> dict[str, Any]:
    return {
        "service": fact.service,
        "event_type": shown(fact.event_type),
        "idempotency_key": shown(fact.idempotency_key),
    }
