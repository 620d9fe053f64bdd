"""Take one event in: store it, and turn whatever happens into an answer.

A sender that got no answer may send the same event again. With the same Idempotency-Key it is told
that its own write is there; without one, or with somebody else's, it is told of a duplicate.
"""

import logging
import uuid

from headway import DuplicateEventError, OutcomeUnknownError, classify_dsql_error
from headway.systems.ledger import answers
from headway.systems.ledger.answers import Answer
from headway.systems.ledger.decoding import RefusedEventError
from headway.systems.ledger.events import Event, event_type
from headway.systems.ledger.metrics import LedgerMetrics
from headway.systems.ledger.rows import StoredEvent
from headway.systems.ledger.settings import LedgerSettings
from headway.systems.ledger.store import Store

log = logging.getLogger("headway.ledger")


class Intake:
    """The one way into the ledger, for single events and for those of a bulk."""

    def __init__(self, store: Store, metrics: LedgerMetrics, settings: LedgerSettings) -> None:
        self._store = store
        self._metrics = metrics
        self._settings = settings

    async def accept(self, event: Event, key: str | None) -> Answer:
        """Store an event that has its id, and count what became of it."""
        transaction_id = uuid.uuid4().hex
        context = {
            "event_id": event.event_id,
            "event_type": event_type(event),
            "event_name": event.event_name,
            "transaction_id": transaction_id,
        }
        answer = await self._accept(event, key or uuid.uuid4().hex, context)
        self._metrics.settled(event_type(event), answer.outcome)
        if answer.outcome == "stored":
            again = answer.body["already"]
            log.info("Event was stored before" if again else "Event stored", extra=context)
        return answer

    async def _accept(self, event: Event, token: str, context: dict[str, str]) -> Answer:
        try:
            is_new = await self._store.append(
                event,
                token=token,
                attempts=self._settings.retry_attempts,
                context=context,
                observer=self._metrics.facts,
            )
        except Exception as error:  # noqa: BLE001 (logged with its traceback when it was given up)
            return await self._failed(event, token, error, context["transaction_id"])
        if is_new:
            return answers.stored(event.event_id, already=False)
        return await self._met_again(event, token, ours=True)

    async def _failed(
        self, event: Event, token: str, error: Exception, transaction_id: str
    ) -> Answer:
        status = self._settings.exhausted_status
        match error:
            case RefusedEventError():
                return answers.refused(str(error), field=error.field, event_id=event.event_id)
            case DuplicateEventError():
                return await self._met_again(event, token)
            case OutcomeUnknownError():
                return answers.outcome_unknown(event.event_id, key=token, status=status)
        # The operation row may have been deleted for its age; the event's own key still tells.
        if classify_dsql_error(error)[1] == "UNIQUE_VIOLATION":
            return await self._met_again(event, token)
        return answers.not_stored(
            event.event_id, error, status=status, transaction_id=transaction_id
        )

    async def _met_again(self, event: Event, token: str, *, ours: bool = False) -> Answer:
        """Answer for an id that is taken: by this sender's own write, or by somebody's."""
        there = await self._look(event.event_id)
        identical = None if there is None else there.event == event
        ours = ours or (there is not None and there.token == token)
        if ours and identical is not False:
            return answers.stored(event.event_id, already=True)
        return answers.duplicate(event.event_id, identical=identical)

    async def _look(self, event_id: str) -> StoredEvent | None:
        try:
            return await self._store.find_event(event_id)
        except Exception:  # what matters is known; only the comparison has to be left out
            log.warning("a stored event could not be read", exc_info=True)
            return None
