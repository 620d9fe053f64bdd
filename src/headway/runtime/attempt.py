"""One attempt at an event, and how it ends."""

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from headway.core.event import Event, open_envelope, read_data, short_name
from headway.core.facts import Fact
from headway.core.travel import Travel
from headway.ports.bus import Delivery
from headway.ports.commit import Unit
from headway.runtime.service import Subscription
from headway.runtime.work import Buffer

if TYPE_CHECKING:
    from headway.runtime.recover import Recovery


class Attempt:
    """A delivery that could be read, on its way through its handler.

    One is made for every event, so what most events never change is a default of the class.
    """

    buffer: Buffer | None = None
    started: datetime | None = None
    ended: datetime | None = None
    """When the handler returned."""
    seconds = 0.0
    reruns = 0
    is_probe = False
    unfit: Exception | None = None
    """Why it cannot be begun."""
    refusal: "Refused | None" = None
    """Why it cannot be read."""
    documents: tuple[str, ...] = ()
    """Of the documents that the event is about, the ones that it has begun to work on."""
    over: tuple[str, ...] = ()
    """Of the same, the ones for which nothing is left to do."""
    missing: tuple[str, ...] = ()
    """Of the same, the ones that were not there when it began."""
    unfound: tuple[str, ...] = ()
    """Of these, the ones that are not there either after the handler has returned."""
    token = ""
    """Whose leases they bear, where they have any."""
    busy_until: datetime | None = None
    """The engine fails for it, or another program keeps one of them locked."""
    waits_for = ""
    """One of them that another operation has leased."""

    def __init__(  # noqa: PLR0917 (made for every event: keywords cost time)
        self,
        recovery: "Recovery",
        delivery: Delivery,
        subscription: Subscription,
        event: Event,
        idempotency_key: str,
        travel: Travel,
        key: str = "",
        ids: tuple[str, ...] = (),
    ) -> None:
        self.recovery = recovery
        self.delivery = delivery
        self.subscription = subscription
        self._event: Event | None = event
        self.idempotency_key = idempotency_key
        self.travel = travel
        self.ids = ids
        """The documents that the event is about."""
        # The text of a DoneKey, without making one for every event.
        kind = f"{subscription.service}/{subscription.event_type}/{travel.generation}"
        self.key = f"{kind}/{key or idempotency_key}"

    @property
    def event(self) -> Event:
        """The event as it was published, decoded again if a handler has had it since."""
        if self._event is None:
            envelope = open_envelope(self.delivery.body)
            self._event = read_data(envelope, self.subscription.data)
        return self._event

    @property
    def event_id(self) -> str:
        """The event's own id, or that of its operation."""
        return open_envelope(self.delivery.body).event_id or self.travel.operation

    def hand_over(self) -> Event:
        """Give the event to its handler, which may change the data: it is not read again."""
        event, self._event = self._event, None
        if event is None:  # an earlier run had it
            event, self._event = self.event, None
        return event

    def is_at(self, delivery: Delivery) -> bool:
        """Say whether a delivery is that of this attempt, come once more."""
        its = self.delivery
        # What other programs published may have no name beside it: then its bytes have to do.
        is_named = delivery.travel == its.travel or not delivery.travel.operation
        return is_named and delivery.queue == its.queue and delivery.body == its.body

    @property
    def document_ids(self) -> tuple[str, ...]:
        """Of the documents that the event is about, the ones that are to be worked on."""
        return tuple(one for one in self.ids if one not in self.over) if self.over else self.ids


class Refused(msgspec.Struct, eq=False):
    """An event of a known type that this version of its service cannot read."""

    recovery: "Recovery"
    delivery: Delivery
    subscription: Subscription
    error: Exception
    event: Event | None = None
    """None: its data does not fit the handler's type."""
    told: Exception | None = None
    """What its dead letter says, if that is more than the error."""

    def awaited(self, live: Collection[str]) -> tuple[str, ...]:
        """Of the versions that are alive, name those that have not refused it."""
        refused = {each.version for each in self.delivery.travel.refusals}
        return tuple(sorted(set(live) - refused - {self.recovery.service.version}))


class Ending(msgspec.Struct, eq=False):
    """A unit to be committed, and what will be true once it is."""

    unit: Unit
    recovery: "Recovery"
    attempt: Attempt | None = None
    facts: tuple[Fact, ...] = ()
    handled: bool = False
    """The handler succeeded."""
    permanent: bool = False
    """The handler failed for good, as it does after a bad deploy."""
    error: BaseException | None = None
    """What a person may want to be told of."""


def named(delivery: Delivery, operation: str) -> Delivery:
    """Name the operation of a message that says nothing of it: other programs publish such.

    If its event has no id either, a redelivery gets another name: then it is at least once.
    """
    return msgspec.structs.replace(delivery, travel=Travel(operation=short_name(operation)))
