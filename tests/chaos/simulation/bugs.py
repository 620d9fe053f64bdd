"""Bugs that real systems have, planted one at a time: the simulation must find each."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headway.runtime.attempt import Attempt
from headway.runtime.finishing import StoreThenBus, dispatch
from headway.testing.engines import MemoryStore
from headway.testing.ports import Delivery, Finish, Message, Outcome, Travel, Unit
from tests.chaos.simulation.engines import Parts
from tests.chaos.simulation.ports import FaultyBus, FaultyStore
from tests.chaos.simulation.state import WatchedState


class SettlesFirst(StoreThenBus):
    """Settles before it dispatches: a crash in between leaves an event that is nowhere."""

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        finishes = await self._settle(units, await self._commit(units))
        keys = [unit.record.key for unit in units if unit.record is not None]
        held = await self._records.find(keys)
        await dispatch(list(held.values()), self._bus, self._letters)
        await self._records.dispatched(list(held))
        return finishes


class Unconfirmed(FaultyBus):
    """Believes in a publish before it is confirmed: what is in a buffer dies with its process."""

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        sending = super().publish(messages)

        async def send() -> Sequence[int]:
            return await sending

        self._process.start(send)
        return [1] * len(messages)


class EffectsFirst(FaultyStore):
    """Writes the effects, and that they are done in a second step."""

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        keys = [unit.record.key for unit in units if unit.record is not None]
        done = await self._process.step("find", lambda: self._store.records.find(keys))
        new = [u for u in units if u.record is not None and u.record.key not in done]
        bare = [msgspec.structs.replace(unit, record=None) for unit in new]
        effects = iter(await super().commit(bare))
        refused = {u.delivery for u in new if next(effects).outcome is Outcome.REFUSED}
        empty = [
            unit if unit.delivery in refused else msgspec.structs.replace(unit, writes=())
            for unit in units
        ]
        return await super().commit(empty)


class Uncorrected(MemoryStore):
    """Relies on whoever sent a letter again to take that down, even if they died at once."""

    def _came_again(self, unit: Unit) -> None:
        """Leave it to them."""


class Unfenced(WatchedState):
    """Does not look at the token: whoever once had an event can settle it for ever."""

    def taken(self, taker: object, delivery: Delivery) -> Any:
        return self.items.get(delivery.receipt[0])


class Ungenerated(Attempt):
    """Names the work without its generation: what is sent again on purpose was done before."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        kind, event_type, _, name = self.key.split("/", 3)
        self.key = f"{kind}/{event_type}/{Travel(operation='').generation}/{name}"


Patch = Callable[[str, object], None]


def _generation_ignored(patch: Patch) -> Parts:
    patch("headway.runtime.recover.Attempt", Ungenerated)
    return Parts()


BUGS: dict[str, Callable[[Patch], Parts]] = {
    "settle before dispatch": lambda _: Parts(finisher=SettlesFirst),
    "acknowledge before confirm": lambda _: Parts(bus=Unconfirmed),
    "done-record outside the commit": lambda _: Parts(store=EffectsFirst),
    "a requeue that is taken down by its sender only": lambda _: Parts(memory=Uncorrected),
    "token unchecked": lambda _: Parts(state=Unfenced),
    "generation ignored": _generation_ignored,
}
