"""Report what went wrong with events, and what became of it; none for a mere wait."""

from typing import Any

from headway.core.facts import DeadLettered, EventRecovered, EventRetryScheduled, Fact
from headway.core.failure import Verdict
from headway.ports.reporter import FINAL, OUTCOME, RECOVERED, RETRYING, ErrorReporter


class RecoveredError(Exception):
    """Stands for failures that were reported and that a later attempt made up for."""


class ReportObserver:
    """Turns the facts that a person may want to look at into reports."""

    def __init__(self, reporter: ErrorReporter) -> None:
        self._reporter = reporter

    def tell(self, fact: Fact) -> None:
        if isinstance(fact, EventRetryScheduled):
            if fact.failure.diagnosis.verdict is not Verdict.NOT_YET:
                context = _context(fact, RETRYING) | {"retry_count": fact.retry}
                self._reporter.report(fact.failure.error, context)
        elif isinstance(fact, EventRecovered):
            if fact.last_error:
                context = _context(fact, RECOVERED) | {"retry_count": fact.retries}
                said = f"processed after {fact.retries} retries; the last error: {fact.last_error}"
                self._reporter.report(RecoveredError(said), context)
        elif isinstance(fact, DeadLettered) and fact.failure is not None:
            context = _context(fact, FINAL) | {
                "retry_count": fact.attempts,
                "letter_id": fact.letter_id,
                "reason": str(fact.reason),
            }
            self._reporter.report(fact.failure.error, context)


def _context(
    fact: EventRetryScheduled | EventRecovered | DeadLettered, outcome: str
) -> dict[str, Any]:
    return {
        OUTCOME: outcome,
        "service": fact.service,
        "event_type": fact.event_type,
        "idempotency_key": fact.idempotency_key,
    }
