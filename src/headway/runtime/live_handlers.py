"""Handlers that other workers run on the same store: some take away each other's work.

Each worker holds a lease for each of its handlers. The name of the lease tells what the handler is;
workers of one program share it. So all workers see what runs beside them, on every store.
"""

import logging
import re
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from headway.core.origin import origin
from headway.core.showing import described, shown
from headway.ports.clock import Clock
from headway.ports.leases import Leases
from headway.runtime.collection_names import CollectionNames
from headway.runtime.fitness import tell_of_stages
from headway.runtime.service import Service, Subscription

_PREFIX = "handler/"
_ROUND = timedelta(minutes=1)
_LEASE = 3 * _ROUND
_LONGEST = 800
"""Bytes of the name of a lease, which is a key in every store. A longer one is not held."""
_LINE = re.compile(r":\d+ ")
_LOG = logging.getLogger("headway")


class _Handler(msgspec.Struct, frozen=True, array_like=True):
    service: str
    version: str
    event_type: str
    collection: str
    """That its documents are in; empty: it is about none."""
    function: str

    @property
    def code(self) -> str:
        """File and name, which a new build of the same program keeps; lines move."""
        return _LINE.sub(" ", self.function, count=1)

    @property
    def lease(self) -> str:
        return _PREFIX + msgspec.json.encode(self).decode()

    def shares_events_with(self, other: "_Handler") -> bool:
        """Say whether each gets but a part of the events, and not because of a roll-out."""
        return (self.service, self.version, self.event_type) == (
            other.service,
            other.version,
            other.event_type,
        )

    def shares_documents_with(self, other: "_Handler") -> bool:
        """Say whether both are about the same documents, and not because of a roll-out."""
        if not self.collection or self.collection != other.collection:
            return False
        return self.service != other.service or (
            self.version == other.version and self.event_type != other.event_type
        )


_READ = msgspec.json.Decoder(_Handler)


class LiveHandlers:
    """Shows the handlers of a worker to others, and warns of those that do not go with its own."""

    def __init__(
        self,
        services: Sequence[Service],
        leases: Leases,
        token: str,
        clock: Clock,
        names: CollectionNames,
    ) -> None:
        self._leases = leases
        self._token = token
        self._clock = clock
        self._names = names
        every = [
            _handler(service, each)
            for service in services
            for each in service.subscriptions.values()
        ]
        self._own = {each.lease: each for each in every if len(each.lease.encode()) <= _LONGEST}
        self._told: set[tuple[_Handler, str, str]] = set()
        self._holds = False

    async def run(self) -> None:
        """Look once a minute, until cancelled."""
        while True:
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 (whatever a driver raises: only hints miss)
                _LOG.debug("Could not look for other workers: %s", described(error))
                self._holds = False
            await self._clock.wait(_ROUND)

    async def leave(self) -> None:
        """Show its handlers no more."""
        if not self._holds:
            return
        try:
            for lease in self._own:
                await self._leases.let_go(lease, self._token)
        except Exception as error:  # noqa: BLE001 (they end by themselves)
            _LOG.debug("Could not release the leases of handlers: %s", described(error))

    async def _look(self) -> None:
        for lease in self._own:
            self._holds = True
            await self._leases.hold(lease, self._token, _LEASE)
        held = await self._leases.held(_PREFIX)
        others = [found for each in held if each not in self._own and (found := _read(each))]
        for own in self._own.values():
            for other in others:
                self._compare(own, other)
        self._names.tell_of_unattended({each.collection for each in others})

    def _compare(self, own: _Handler, other: _Handler) -> None:
        if own.code == other.code or (own, other.service, other.code) in self._told:
            return
        if own.shares_events_with(other):
            _LOG.warning(
                "Another worker runs service %s too, and handles %s by %s, not by %s as here: each "
                "event goes to only one of them. If these are two programs, give each a Service "
                "with a name of its own, and each gets every event. If this is a roll-out, give "
                "each build its own Service(version=).",
                own.service,
                own.event_type,
                shown(other.function),
                own.function,
            )
        elif own.shares_documents_with(other):
            elsewhere = f"{other.event_type} in another worker of service {other.service}"
            tell_of_stages(
                own.collection,
                (own.function, own.event_type),
                (other.function, elsewhere),
            )
        else:
            return
        self._told.add((own, other.service, other.code))


def _handler(service: Service, subscription: Subscription) -> _Handler:
    return _Handler(
        service=service.name,
        version=service.version,
        event_type=subscription.event_type,
        collection="" if subscription.documents is None else subscription.documents[0],
        function=origin(subscription.handler),
    )


def _read(lease: str) -> _Handler | None:
    try:
        return _READ.decode(lease.removeprefix(_PREFIX))
    except (msgspec.MsgspecError, UnicodeError):  # another version of Headway may write others
        return None
