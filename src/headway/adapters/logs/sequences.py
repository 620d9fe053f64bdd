"""Lines about results that wait for their turn: only what a person may have to look at."""

import logging

from headway.core.sequence_facts import (
    GapGivenUp,
    LookNotScheduled,
    ResultFailed,
    SequenceFact,
    SequencesAway,
    SequencesBack,
    TurnLost,
)
from headway.core.showing import described


class SequenceLog:
    """Writes to one logger; what happens all the time is left to the counters."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger("headway")

    def tell(self, fact: SequenceFact) -> None:
        match fact:
            case GapGivenUp():
                self._log.info(
                    "%s: the wait for a missing result is over (%s); %d %s held behind it",
                    fact.key,
                    fact.why,
                    fact.held,
                    "was" if fact.held == 1 else "were",
                    extra={"key": fact.key, "why": str(fact.why), "held": fact.held},
                )
            case ResultFailed():
                self._failed(fact)
            case TurnLost():
                self._log.info(
                    "%s: position %d took longer than its lease; somebody else has the key",
                    fact.key,
                    fact.position,
                    extra={"key": fact.key, "position": fact.position},
                )
            case LookNotScheduled():
                self._log.warning(
                    "%s: could not schedule a look at it (%s); the index finds it",
                    fact.key,
                    described(fact.error),
                    extra={"key": fact.key},
                )
            case SequencesAway():
                self._log.error(
                    "The engine of sequences is away for more than %.0fs (%s)",
                    fact.patience.total_seconds(),
                    described(fact.error),
                )
            case SequencesBack():
                self._log.warning(
                    "The engine of sequences is back after %.1fs", fact.away_for.total_seconds()
                )
            case _:
                pass

    def _failed(self, fact: ResultFailed) -> None:
        wait = "somebody else has it" if fact.wait is None else f"again in {fact.wait}"
        self._log.warning(
            "%s: position %d could not be applied at attempt %d (%s); %s",
            fact.key,
            fact.position,
            fact.attempt,
            described(fact.error),
            wait,
            extra={"key": fact.key, "position": fact.position, "attempt": fact.attempt},
        )
