"""Say each fact as a log line, at the level that its reader needs, with its fields beside it."""

import logging
from typing import Any

from headway.adapters.logs.events import EventLines
from headway.adapters.logs.formats import PLAIN
from headway.adapters.logs.sweeps import SweepLines
from headway.core.action import Reason
from headway.core.facts import CallFact, CommitResolved, Fact, GaveUp, Recovered, RetryScheduled
from headway.core.failure import Failure, Verdict
from headway.core.sweep_facts import SweepFact

_FOUND = {
    "OC000_TRANSACTION_CONFLICT": "OC000 transaction conflict detected",
    "CONNECTION_ERROR": "Connection error detected",
}
_OUTCOMES = {
    True: "committed",
    False: "not committed, running it again",
    None: "perhaps committed, perhaps not: it is unknown",
}
_TAKEN = PLAIN | {
    *("timestamp", "level", "logger", "traceback"),  # by the JSON line
    *("call", "error_type", "sqlstate", "code_detail", "is_retryable", "rule", "attempt"),
    *("wait_time", "reason", "committed"),
}


class LogObserver:
    """Writes to one logger. Fields travel as record attributes: a JSON formatter shows them all."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger("headway")
        self._events = EventLines(self._log)
        self._sweeps = SweepLines(self._log)

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
                    "Connection lost during COMMIT: operation %s was %s",
                    fact.operation_id,
                    _OUTCOMES[fact.committed],
                    extra={**_context(fact), "call": fact.call, "committed": fact.committed},
                )
            case _:
                if isinstance(fact, SweepFact):
                    self._sweeps.tell(fact)
                else:
                    self._events.tell(fact)

    def _retrying(self, fact: RetryScheduled) -> None:
        if not self._log.isEnabledFor(logging.WARNING):
            return
        fields = _fields(fact) | {"wait_time": round(fact.delay.total_seconds(), 3)}
        diagnosis = fact.failure.diagnosis
        found = _FOUND.get(diagnosis.error_type) or f"{diagnosis.error_type} detected"
        self._log.warning("%s - retrying", found, extra=fields)
        self._log.info(
            "Retrying after %.3fs (attempt %d/%d)",
            fact.delay.total_seconds(),
            fact.failure.attempt,
            fact.max_attempts,
            extra=fields,
        )

    def _recovered(self, fact: Recovered) -> None:
        if self._log.isEnabledFor(logging.INFO):
            self._log.info(
                "Successfully completed after %d attempts",
                fact.attempts,
                extra={**_context(fact), "call": fact.call, "attempt": fact.attempts},
            )

    def _gave_up(self, fact: GaveUp) -> None:
        fields = _fields(fact) | {"reason": str(fact.reason)}
        error = fact.failure.error
        match fact.reason:
            case Reason.MAX_ATTEMPTS_EXCEEDED:
                line = "All retry attempts exhausted (%d/%d)"
            case Reason.TTL_EXCEEDED:
                line = "Gave up at attempt %d/%d: no time left for another"
            case _:
                line = "Non-retryable error at attempt %d/%d"
        self._log.error(
            line,
            fact.failure.attempt,
            fact.max_attempts,
            extra=fields,
            exc_info=(type(error), error, error.__traceback__),
        )


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
    }


def _context(fact: CallFact) -> dict[str, Any]:
    """Give the caller's fields; one whose name is taken is shown as `context_<name>`."""
    return {
        f"context_{name}" if name in _TAKEN else name: value for name, value in fact.context.items()
    }
