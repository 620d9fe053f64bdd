"""Documents whose event comes again: they are let go, and left to it until it is overdue.

Without this their leases would run out while the event waits for its own retry, and a sweeper would
make a second attempt beside the one that is scheduled. Nor would a worker that gets the event
earlier, because the first was stopped, have to wait until the lease of that one is over.
"""

import logging
from collections.abc import Sequence
from datetime import datetime

from headway.core.beginning import waits_until
from headway.core.showing import described
from headway.ports.bus import HandedBack, Later, Parked, Then
from headway.ports.clock import Clock
from headway.ports.documents import Documents
from headway.runtime.attempt import Ending

_LOG = logging.getLogger("headway")


class Leaving:
    """Lets go of the documents of events that have not ended."""

    def __init__(self, documents: Documents, clock: Clock) -> None:
        self._documents = documents
        self._clock = clock

    async def leave(self, endings: Sequence[Ending]) -> None:
        """Let go before the events are settled; whoever has lost a document lets go of nothing."""
        tokens: dict[tuple[str, datetime], dict[str, str]] = {}
        for ending in endings:
            attempt = ending.attempt
            if attempt is None or not attempt.token or ending.unit.record is not None:
                continue
            lifecycle, then, now = (
                attempt.subscription.lifecycle,
                ending.unit.then,
                self._clock.now(),
            )
            if lifecycle is None or not attempt.documents:
                continue
            key = lifecycle.collection, waits_until(lifecycle, _due(then, now), now)
            tokens.setdefault(key, {}).update(dict.fromkeys(attempt.documents, attempt.token))
        for (collection, until), its in tokens.items():
            try:
                await self._documents.leave(collection, its, until)
            # Whatever a driver raises: then the leases run out, as if the worker had died.
            except Exception as error:  # noqa: BLE001
                _LOG.warning("Could not release leases on %s: %s", collection, described(error))


def _due(then: Then, now: datetime) -> datetime | None:
    """Say when an event comes again; None: nobody knows."""
    match then:
        case Parked():  # it waits for a probe that may be another event
            return None
        case Later(due=due) | HandedBack(due=datetime() as due):
            return due
        case _:
            return now
