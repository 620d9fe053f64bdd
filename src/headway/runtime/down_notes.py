"""Tell sweepers, through the store, that events would be sent in vain.

What they depend on is down, or events of their type are paused because most of them failed for
good. An attempt that no worker makes would be counted all the same.

Whoever is down is found to be back by an event that succeeds. Where nobody else sends any, sweepers
have to: while a note stands, they let one document through now and then, as a probe.

As a lease: who dies takes no note back, and it ends by itself.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta

from headway.core.facts import Fact, FloodChanged, HealthChanged
from headway.core.showing import described
from headway.ports.clock import Clock
from headway.ports.leases import Leases

DOWN = "down/"
_PAUSED = "/paused"
_BEATS = 3
"""In one lease: as often as the dependency is probed."""
_LOG = logging.getLogger("headway")


def down_note(service: str, event_type: str) -> str:
    """Name the note about one type of events of one service.

    >>> down_note("embedding", "ChunksPrepared")
    'down/embedding/ChunksPrepared'
    """
    return f"{DOWN}{service}/{event_type}"


def is_down(notes: Collection[str], service: str, event_type: str) -> bool:
    """Say whether there is a note about a type of events: an outage, or a pause.

    >>> is_down(["down/embedding/ChunksPrepared/paused"], "embedding", "ChunksPrepared")
    True
    """
    note = down_note(service, event_type)
    return not {note, note + _PAUSED}.isdisjoint(notes)


def paused_types(notes: Collection[str]) -> list[tuple[str, str]]:
    """Give service and event type of each note about a pause.

    >>> paused_types(["down/embedding/ChunksPrepared", "down/mail/Welcome/paused"])
    [('mail', 'Welcome')]
    """
    paused = [note.split("/") for note in notes if note.endswith(_PAUSED)]
    return [(service, event_type) for _, service, event_type, _ in paused]


class DownNotes:
    """Keeps a note for as long as a dependency is down, in one worker."""

    def __init__(
        self,
        leases: Leases,
        token: str,
        probes: Mapping[str, timedelta],
        clock: Clock,
        start: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._leases = leases
        self._token = token
        self._probes = probes
        """How far apart each service probes, at most."""
        self._clock = clock
        self._start = start
        self._down: dict[str, set[str]] = {}
        """The rules that are violated, by note."""

    def tell(self, fact: Fact) -> None:
        """Hear that a dependency went down or a type paused, or that it is over."""
        if isinstance(fact, HealthChanged):
            name = down_note(fact.service, fact.event_type)
            self._changed(fact.service, name, fact.rule, down=fact.down)
        elif isinstance(fact, FloodChanged):
            name = down_note(fact.service, fact.event_type) + _PAUSED
            self._changed(fact.service, name, "flood", down=fact.paused)

    def _changed(self, service: str, name: str, rule: str, *, down: bool) -> None:
        rules = self._down.setdefault(name, set())
        if down:
            is_new = not rules
            rules.add(rule)
            if is_new:
                self._start(asyncio.create_task(self._keep(name, self._probes[service])))
            return
        rules.discard(rule)
        if not rules:
            del self._down[name]
            self._start(asyncio.create_task(self._let_go(name)))

    async def _keep(self, name: str, every: timedelta) -> None:
        rules = self._down.get(name)
        while rules is not None and self._down.get(name) is rules:
            try:
                await self._leases.hold(name, self._token, every * _BEATS)
            except Exception as error:  # noqa: BLE001 (the store may be what is down)
                _LOG.debug("Could not tell sweepers that %s: %s", name, described(error))
            await self._clock.wait(every)

    async def _let_go(self, name: str) -> None:
        try:
            await self._leases.let_go(name, self._token)
        except Exception as error:  # noqa: BLE001 (it ends by itself)
            _LOG.debug("Could not tell sweepers the end of %s: %s", name, described(error))
