"""Report what went wrong with events: one report for each failure, none for a mere wait."""

from typing import Any

from headway.core.facts import DeadLettered, EventRetryScheduled, Fact
from headway.core.failure import Verdict
from headway.ports.reporter import ErrorReporter


class ReportObserver:
    """Turns the facts that a person may want to look at into reports."""

    def __init__(self, reporter: ErrorReporter) -> None:
        self._reporter = reporter

    def tell(self, fact: Fact) -> None:
        if isinstance(fact, EventRetryScheduled):
            if fact.failure.diagnosis.verdict is not Verdict.NOT_YET:
                context = _context(fact) | {"retry_count": fact.retry}
                self._reporter.report(fact.failure.error, context)
        elif isinstance(fact, DeadLettered) and fact.failure is not None:
            context = _context(fact) | {
                "retry_count": fact.attempts,
                "letter_id": fact.letter_id,
                "reason": str(fact.reason),
            }
            self._reporter.report(fact.failure.error, context)


def _context(fact: EventRetryScheduled | DeadLettered) -> dict[str, Any]:
    return {
        "service": fact.service,
        "event_type": fact.event_type,
        "idempotency_key": fact.idempotency_key,
    }
