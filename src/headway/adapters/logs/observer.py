"""Say each fact as a log line, at the level that its reader needs, with its fields beside it."""

import logging
from typing import Any

from headway.adapters.logs.events import EventLines
from headway.adapters.logs.formats import PLAIN
from headway.adapters.logs.repeats import Line, Repeats, kind_of
from headway.adapters.logs.sweeps import SweepLines
from headway.adapters.logs.writing import log_traceback
from headway.core.action import Reason
from headway.core.facts import CallFact, CommitResolved, Fact, GaveUp, Recovered, RetryScheduled
from headway.core.failure import Diagnosis, Failure, Verdict
from headway.core.showing import described, described_cause
from headway.core.sweep_facts import SweepFact

_CONFLICTS = {"40P01": "Deadlock", "55P03": "Locked row"}
"""Conflicts of PostgreSQL that are not between two versions of a row."""
_OUTCOMES = {
    True: "committed",
    False: "not committed, running it again",
    None: "perhaps committed, perhaps not: it is unknown",
}
_TAKEN = PLAIN | {
    *("timestamp", "level", "logger", "traceback"),  # by the JSON line
    *("call", "error_type", "sqlstate", "code_detail", "is_retryable", "rule", "attempt"),
    *("wait_time", "reason", "committed", "last_error", "cause", "count", "seconds"),
}


class LogObserver:
    """Writes to one logger. Fields travel as record attributes: a JSON formatter shows them all."""

    def __init__(
        self, logger: logging.Logger | None = None, repeats: Repeats | None = None
    ) -> None:
        self._log = logger or logging.getLogger("headway")
        self._repeats = repeats or Repeats(self._log)
        self._events = EventLines(self._log, self._repeats)
        self._sweeps = SweepLines(self._log, self._repeats)

    def tell(self, fact: Fact) -> None:
        match fact:
            case RetryScheduled():
                self._retrying(fact)
            case Recovered():
                self._recovered(fact)
            case GaveUp():
                self._gave_up(fact)
            case CommitResolved():
                self._log.log(
                    logging.ERROR if fact.committed is None else logging.WARNING,
                    "Connection lost during COMMIT: operation %s was %s; function: %s",
                    fact.operation_id,
                    _OUTCOMES[fact.committed],
                    _function(fact),
                    extra={**_context(fact), "call": fact.call, "committed": fact.committed},
                )
            case _:
                if isinstance(fact, SweepFact):
                    self._sweeps.tell(fact)
                else:
                    self._events.tell(fact)

    def flush(self) -> None:
        """Write what is known of lines that were left out: the process is about to end."""
        self._repeats.flush()

    def _retrying(self, fact: RetryScheduled) -> None:
        if not self._log.isEnabledFor(logging.WARNING):
            return
        found, raised = _found(fact.failure.diagnosis), _raised(fact)
        values = (found, raised)
        if self._leaves_out(fact, logging.WARNING, "%s detected - retrying: %s", values):
            return
        fields = _fields(fact) | {"wait_time": round(fact.delay.total_seconds(), 3)}
        self._log.warning("%s detected - retrying: %s", found, raised, extra=fields)
        self._log.info(
            "Retrying after %.3fs (attempt %d/%d): %s",
            fact.delay.total_seconds(),
            fact.failure.attempt,
            fact.max_attempts,
            raised,
            extra=fields,
        )

    def _recovered(self, fact: Recovered) -> None:
        if not self._log.isEnabledFor(logging.INFO):
            return
        text, values = (
            "Successfully completed after %d attempts: %s",
            (
                fact.attempts,
                _function(fact),
            ),
        )
        line = Line(logging.INFO, text, values, {"call": fact.call})
        if not self._repeats.leaves_out(("recovered", fact.call), lambda: line):
            fields = {**_context(fact), "call": fact.call, "attempt": fact.attempts}
            self._log.info(text, *values, extra=fields)

    def _gave_up(self, fact: GaveUp) -> None:
        if not self._log.isEnabledFor(logging.ERROR):
            return
        match fact.reason:
            case Reason.MAX_ATTEMPTS_EXCEEDED:
                text = "All retry attempts exhausted (%d/%d): %s"
            case Reason.TTL_EXCEEDED:
                text = "Gave up at attempt %d/%d: no time left for another: %s"
            case _:
                text = "Non-retryable error at attempt %d/%d: %s"
        values = (fact.failure.attempt, fact.max_attempts, _raised(fact))
        if self._leaves_out(fact, logging.ERROR, text, values):
            return
        fields = _fields(fact) | {"reason": str(fact.reason)}
        log_traceback(
            self._log, logging.ERROR, text, values, error=fact.failure.error, fields=fields
        )

    def _leaves_out(
        self, fact: RetryScheduled | GaveUp, level: int, text: str, values: tuple[Any, ...]
    ) -> bool:
        fields = {"call": fact.call, "rule": fact.failure.diagnosis.rule}
        line = Line(level, text, values, fields)
        return self._repeats.leaves_out((text, fact.call, kind_of(fact.failure)), lambda: line)


def _found(diagnosis: Diagnosis) -> str:
    """Name what was met; OC000 is what Aurora DSQL calls a conflict, and no other database does."""
    match diagnosis.error_type:
        case "OC000_TRANSACTION_CONFLICT":
            codes = (diagnosis.code, diagnosis.detail)
            if diagnosis.rule.startswith("dsql.") or any(
                code is not None and code.startswith("OC") for code in codes
            ):
                return "OC000 transaction conflict"
            if diagnosis.rule.startswith("sqlite."):
                return "Locked SQLite file"
            return _CONFLICTS.get(diagnosis.code or "", "Transaction conflict")
        case "CONNECTION_ERROR":
            return "Timeout" if _is_timeout(diagnosis.found) else "Connection error"
        case other:
            return other


def _is_timeout(error: BaseException) -> bool:
    """Tell a limit of time from a connection that the network gave up, which has an errno."""
    if isinstance(error, OSError) and error.errno is not None:
        return False
    return any(kind.__name__.endswith(("Timeout", "TimeoutError")) for kind in type(error).__mro__)


def _raised(fact: RetryScheduled | GaveUp) -> str:
    return f"{_function(fact)} raised {described(fact.failure.error)}"


def _function(fact: CallFact) -> str:
    """Name what was called; a handler under the name of its service."""
    handler = fact.context.get("handler")
    return f"{fact.call}.{handler}" if handler else fact.call


def _fields(fact: RetryScheduled | GaveUp) -> dict[str, Any]:
    failure: Failure = fact.failure
    diagnosis = failure.diagnosis
    return {
        **_context(fact),
        "call": fact.call,
        "error_type": diagnosis.error_type,
        "sqlstate": diagnosis.code,
        "code_detail": diagnosis.detail,
        "is_retryable": diagnosis.verdict is not Verdict.PERMANENT,
        "rule": diagnosis.rule,
        "attempt": failure.attempt,
        "last_error": described(failure.error),
        "cause": described_cause(failure.error) or None,
    }


def _context(fact: CallFact) -> dict[str, Any]:
    """Give the caller's fields; one whose name is taken is shown as `context_<name>`."""
    return {
        f"context_{name}" if name in _TAKEN else name: value for name, value in fact.context.items()
    }
