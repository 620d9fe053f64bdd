"""Events that no service takes: kept until one does, or until a person removes them.

Promises that every adapter keeps (the conformance suite in `headway.testing` checks them):

- `Bus.publish` stores an event that no queue takes here, in the same durable step in which it would
  have stored it in a queue, unless the message says `needs_consumer=False`.
- When its type gets a queue (`Bus.open`, or `route` where the engine could not do it in one step),
  the event moves there, once. A crash on the way loses nothing; where it leaves two copies, the
  operation id is the same, and done records recognise it.
- An event that was published twice under one id waits here once, where the engine counts what it
  accepts; elsewhere done records recognise the second one later.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from headway.core.travel import Travel

MALFORMED = "(malformed)"
"""The type of what another program put here without a type, or in a form that cannot be read. No
service can have it: such events are listed and purged, and never routed."""

OnStep = Callable[[Mapping[str, int]], object]
"""Told how many events of which types have just left. What it raises ends the work there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnroutedEvent:
    """An event whose type no queue took when it was published."""

    event_type: str
    body: bytes
    travel: Travel
    """Its `operation` names it: the event id, or what the publisher chose."""
    at: datetime
    """When it was published."""


class Unrouted(Protocol):
    """What `headway unrouted` shows and changes. Nothing here expires."""

    async def counts(self) -> Mapping[str, int]:
        """Count the events that wait here, exactly, by event type. Reading disturbs no worker."""
        ...

    async def oldest(self) -> Mapping[str, datetime]:
        """Say when the oldest event of each type was published. Reading disturbs no worker."""
        ...

    async def taken_types(self) -> Sequence[str]:
        """Name the event types that some queue takes, for "did you mean"."""
        ...

    async def takers(self, event_type: str) -> Sequence[str]:
        """Name the queues that take an event type, by name."""
        ...

    async def read(
        self,
        limit: int,
        *,
        event_types: Sequence[str] | None = None,
        operations: Sequence[str] | None = None,
    ) -> Sequence[UnroutedEvent]:
        """Give events in the order in which they came, without removing them.

        Args:
            limit: Give at most this many.
            event_types: Give only events of these types. None: of all types.
            operations: Give only events with these operation ids. None: with any.
        """
        ...

    async def route(
        self, event_types: Sequence[str] | None = None, *, on_step: OnStep | None = None
    ) -> int:
        """Move events whose type has a queue by now to every queue that takes it, once.

        Workers call this now and then with their own types, so it must cost little while nothing
        waits. Events that still have no queue stay.

        Args:
            event_types: Move only events of these types. None: of all types.
            on_step: Called after each step, and not again before the next one is complete.

        Returns:
            How many events left.
        """
        ...

    async def purge(
        self,
        event_types: Sequence[str] | None = None,
        *,
        operations: Sequence[str] | None = None,
        on_step: OnStep | None = None,
    ) -> int:
        """Remove events for good; say how many were there. The arguments choose as in `read`.

        Given neither types nor operations it removes nothing: a caller has to name what it removes.
        """
        ...
