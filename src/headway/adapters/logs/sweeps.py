"""Lines about sweeps: what a run did, what was given up, and what a person has to look at."""

import logging
from typing import Any, assert_never

from headway.adapters.logs.durations import short
from headway.adapters.logs.repeats import Line, Repeats
from headway.adapters.logs.writing import log_traceback
from headway.core.catalogue import DEFAULT_CLASSIFIER
from headway.core.failure import words
from headway.core.secrets import hidden
from headway.core.showing import shown
from headway.core.sweep_facts import (
    CollectionFailed,
    CollectionLeftAlone,
    DocumentGivenUp,
    DocumentsHeldBack,
    DocumentsNotRebuilt,
    DocumentsRefused,
    DocumentsRequeued,
    LeasesDoubted,
    SweepEnded,
    SweepFact,
)
from headway.core.sweep_totals import Skip, Status


class SweepLines:
    """Writes the lines of sweeps to one logger."""

    def __init__(self, logger: logging.Logger, repeats: Repeats) -> None:
        self._log = logger
        self._repeats = repeats

    def tell(self, fact: SweepFact) -> None:
        match fact:
            case SweepEnded():
                self._ended(fact)
            case DocumentGivenUp():
                self._given_up(fact)
            case DocumentsRequeued():
                self._requeued(fact)
            case DocumentsHeldBack():
                self._held_back(fact)
            case DocumentsNotRebuilt():
                self._not_rebuilt(fact)
            case DocumentsRefused():
                self._refused(fact)
            case LeasesDoubted():
                self._doubted(fact)
            case CollectionLeftAlone():
                self._left_alone(fact)
            case CollectionFailed():
                self._failed(fact)
            case _:
                assert_never(fact)

    def _ended(self, fact: SweepEnded) -> None:
        swept = fact.collections
        errors = sum(fact.errors.values()) + sum(sum(one.errors.values()) for one in swept)
        requeued = sum(one.requeued for one in swept)
        given_up = sum(one.given_up for one in swept)
        backoff = sum(one.skipped.get(Skip.BACKOFF, 0) for one in swept)
        stuck = [one.stuck for one in swept]
        known = sum(number for number in stuck if number is not None)
        self._log.log(
            logging.INFO if fact.status is Status.SUCCESS else logging.ERROR,
            "Sweep %s in %.2fs: %d requeued, %d waiting for their backoff, %d given up, %s; "
            "%s stuck",
            "ended" if fact.status is Status.SUCCESS else "failed",
            fact.elapsed.total_seconds(),
            requeued,
            backoff,
            given_up,
            _many(errors, "error"),
            "unknown how many" if None in stuck else known,
            extra={
                "status": str(fact.status),
                "duration": round(fact.elapsed.total_seconds(), 3),
                "requeued": requeued,
                "skipped_backoff": backoff,
                "given_up": given_up,
                "errors": errors,
                "stuck": None if None in stuck else known,
            },
        )

    def _given_up(self, fact: DocumentGivenUp) -> None:
        line = Line(
            logging.ERROR,
            "Document %s of %s has had all its attempts (%d, the last at %s) and is given up as "
            "failed_max_retries; last error: %s",
            (
                shown(fact.document_id),
                shown(fact.collection),
                fact.attempts,
                shown(fact.last_attempt_time) or "an unknown time",
                shown(fact.last_error) or "none is known",
            ),
            _fields(fact),
        )
        key = ("given up", fact.collection, fact.last_error.partition(":")[0])
        if self._repeats.leaves_out(key, lambda: line):
            return
        self._log.error(
            line.text,
            *line.values,
            extra={
                **line.fields,
                "document_id": shown(fact.document_id),
                "attemptCount": fact.attempts,
                "lastAttemptTime": shown(fact.last_attempt_time),
                "lastError": shown(fact.last_error),
            },
        )

    def _requeued(self, fact: DocumentsRequeued) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug(
                "Requeued %s of %s: %s",
                _many(len(fact.document_ids), "document"),
                shown(fact.collection),
                shown(", ".join(fact.document_ids)),
                extra=_fields(fact) | {"count": len(fact.document_ids)},
            )

    def _held_back(self, fact: DocumentsHeldBack) -> None:
        why = (
            "no sweep had ended for long, so the first ones are careful: each may send twice as "
            "many, or set RETRY_JOB_CAP_AFTER_DOWNTIME"
            if fact.after_downtime
            else "they come in later runs, or set RETRY_JOB_LIMIT"
        )
        self._log.warning(
            "%s of %s %s due and held back, over %d in one run; %s",
            _many(fact.count, "document"),
            shown(fact.collection),
            "is" if fact.count == 1 else "are",
            fact.limit,
            why,
            extra=_fields(fact)
            | {
                "count": fact.count,
                "limit": fact.limit,
                "after_downtime": fact.after_downtime,
            },
        )

    def _not_rebuilt(self, fact: DocumentsNotRebuilt) -> None:
        self._log.error(
            "No %s that its handler accepts can be made of %s of %s: %s: %s (the first "
            "is %s); give its handler a rebuild= that fits, mend the documents, or put them "
            "away: headway documents archive %s %s --stuck (or purge)",
            shown(fact.event_type),
            _many(fact.count, "document"),
            shown(fact.collection),
            shown(fact.error_type),
            shown(fact.first_error),
            shown(fact.first_id),
            shown(fact.collection),
            shown(fact.first_id),
            extra=_fields(fact)
            | {
                "event_type": shown(fact.event_type),
                "error_type": shown(fact.error_type),
                "last_error": shown(fact.first_error),
                "document_id": shown(fact.first_id),
                "count": fact.count,
            },
        )

    def _refused(self, fact: DocumentsRefused) -> None:
        named = ", ".join(map(shown, fact.first_ids)) + ", ..." * (fact.count > len(fact.first_ids))
        them = "it" if fact.count == 1 else "them"
        self._log.error(
            "%s %s of %s: %s: %s (%s); the others are swept: mend %s, or %s",
            "The bus takes no event of" if fact.by_bus else "The store refuses to change",
            _many(fact.count, "document"),
            shown(fact.collection),
            shown(fact.error_type),
            shown(fact.first_error) or "it says no more",
            named,
            them,
            "have rebuild= make what it takes"
            if fact.by_bus
            else f"what refuses {them} (a validator, a unique index, a trigger, a limit of size)",
            extra=_fields(fact)
            | {
                "error_type": shown(fact.error_type),
                "last_error": shown(fact.first_error),
                "document_id": shown(fact.first_ids[0]),
                "count": fact.count,
            },
        )

    def _doubted(self, fact: LeasesDoubted) -> None:
        self._log.error(
            "%d leases on documents of %s are over at once and only %d run: heartbeats must have "
            "failed, so none of these is requeued this time; look at the store and the network "
            "between it and the workers",
            fact.over,
            shown(fact.collection),
            fact.leased,
            extra=_fields(fact) | {"over": fact.over, "leased": fact.leased},
        )

    def _left_alone(self, fact: CollectionLeftAlone) -> None:
        self._log.warning(
            "%s of %s is requeued while %s of %s is paused, or what it needs is down; %s in %s",
            "Only one document" if fact.probes else "Nothing",
            shown(fact.collection),
            shown(fact.event_type),
            fact.service,
            "the next one" if fact.probes else "looking again",
            short(fact.pause),
            extra=_fields(fact)
            | {
                "service": fact.service,
                "event_type": shown(fact.event_type),
                "probes": fact.probes,
                "pause": round(fact.pause.total_seconds(), 3),
            },
        )

    def _failed(self, fact: CollectionFailed) -> None:
        error = fact.error
        text, values = (
            "The sweep %s: %s: %s; %s",
            (
                f"of {shown(fact.collection)} was broken off"
                if fact.collection
                else "could not begin",
                type(error).__name__,
                shown(hidden(words(error))) or "it says no more",
                _what_is_left(fact),
            ),
        )
        fields = _fields(fact) | {"error_type": type(error).__name__}
        if DEFAULT_CLASSIFIER.classify(error).error_type == "CONNECTION_ERROR":
            self._log.error(text, *values, extra=fields)  # an outage needs no traceback
        else:
            log_traceback(self._log, logging.ERROR, text, values, error=error, fields=fields)


def _what_is_left(fact: CollectionFailed) -> str:
    if not fact.collection:
        return "nothing was changed"
    if fact.claims:
        return "what it had claimed is sent again by a later one"
    return "what is left comes in a later one"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _fields(fact: Any) -> dict[str, Any]:
    return {"collection": shown(fact.collection)}
