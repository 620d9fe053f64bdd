"""A bus without a store: nothing is remembered, so every event is handled at least once.

What a handler publishes is confirmed, then its delivery is settled. A crash between the two makes
the event come again, and nobody recognises it. Effects that have to be committed with the event
have no place here, and are refused instead of being lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn

from headway.core.beginning import Beginning, Begun
from headway.core.errors import ConfigurationError, UnsendableError
from headway.core.letter import Letter
from headway.core.lifecycle import Lifecycle, State
from headway.core.writes import Document
from headway.ports.bus import Bus, Delivery, HandedBack, Message, Then, unrouted_types
from headway.ports.commit import COMMITTED, LOST, Finish, Outcome, Unit
from headway.ports.letters import Letters
from headway.ports.records import DoneRecord

CURE = "set HEADWAY_STORE, for example to sqlite:///headway.db"


def needs_store(what: str) -> ConfigurationError:
    """Say that something cannot be had without a store, and how to have one."""
    return ConfigurationError(f"{what} needs a store, and HEADWAY_STORE is not set: {CURE}")


class BusOnly:
    """The finisher for a bus without a store."""

    at_once = 64
    """So that an event which is put off is sent on its way when it fails, and not when those that
    failed before it are confirmed."""

    def __init__(self, bus: Bus, letters: Letters) -> None:
        self._bus = bus
        self._letters = letters

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        try:
            return await self._finish(units)
        except UnsendableError as error:
            if len(units) == 1:
                return [await self._unsendable(units[0], error)]
        # One of them has something to send that can never be sent: the others go their way.
        return [finish for unit in units for finish in await self.finish([unit])]

    async def _unsendable(self, unit: Unit, error: UnsendableError) -> Finish:
        if unit.letter is None:
            return Finish(Outcome.REFUSED, error=error)
        # Its letter cannot be written. The bus may still have a place for the event itself.
        (ours,) = await self._bus.settle([(unit.delivery, HandedBack())])
        return COMMITTED if ours else LOST

    async def _finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        settlements: list[tuple[Delivery, Then]] = []
        outgoing: list[Message] = []
        letters: dict[str, list[Letter]] = {}
        refused: dict[int, Finish] = {}
        for number, unit in enumerate(units):
            if unit.writes or unit.bodies:
                refused[number] = _refused(unit)
                continue
            if unit.letter is not None:
                letters.setdefault(unit.failed_queue, []).append(unit.letter)
            if unit.outgoing:
                outgoing += unit.outgoing
            settlements.append((unit.delivery, unit.then))
        for queue, written in letters.items():
            await self._letters.write(queue, written)
        unrouted: frozenset[str] = frozenset()
        if outgoing:
            unrouted = unrouted_types(outgoing, await self._bus.publish(outgoing))
        settled = await self._bus.settle(settlements) if settlements else ()
        if not refused and not unrouted:
            return [COMMITTED if ours else LOST for ours in settled]
        answers = iter(settled)
        finishes = [
            refused.get(number) or (COMMITTED if next(answers) else LOST)
            for number in range(len(units))
        ]
        return [
            replace(finish, unrouted=unit.unrouted(unrouted))
            for unit, finish in zip(units, finishes, strict=True)
        ]


def _refused(unit: Unit) -> Finish:
    what = "work.transaction" if unit.bodies else "writing to work.documents"
    return Finish(Outcome.REFUSED, error=needs_store(what))


class NoRecords:
    """Recognises nothing."""

    async def find(self, _keys: Sequence[str]) -> Mapping[str, DoneRecord]:
        return {}

    async def undispatched(self, _before: datetime, _limit: int) -> Sequence[DoneRecord]:
        return ()

    async def dispatched(self, _keys: Sequence[str]) -> None:
        """Nothing was held."""

    async def forget(self, _before: datetime, _limit: int) -> int:
        return 0


class NoDocuments:
    """Refuses every question about documents."""

    async def fetch(self, collection: str, _ids: Sequence[str]) -> Mapping[str, Document]:
        self._refuse(collection)

    async def find(
        self, collection: str, _where: Mapping[str, Any], _limit: int
    ) -> Sequence[Document]:
        self._refuse(collection)

    async def count(self, collection: str, _where: Mapping[str, Any]) -> int:
        self._refuse(collection)

    async def tally(self, lifecycle: Lifecycle) -> Mapping[State, int]:
        self._refuse(lifecycle.collection)

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        self._refuse(beginnings[0].lifecycle.collection if beginnings else "")

    async def renew(self, collection: str, _tokens: Mapping[str, str], _until: datetime) -> int:
        self._refuse(collection)

    async def leave(self, collection: str, _tokens: Mapping[str, str], _until: datetime) -> int:
        self._refuse(collection)

    def _refuse(self, collection: str) -> NoReturn:
        raise needs_store(f"reading documents of {collection!r}")
