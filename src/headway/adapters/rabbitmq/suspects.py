"""Suspects: who began them, and whether they came to grief by it."""

from datetime import timedelta
from functools import partial
from hashlib import sha256

from headway.adapters.rabbitmq import begins
from headway.adapters.rabbitmq.desk import Desk
from headway.ports.bus import Delivery
from headway.ports.clock import Clock

_GRAVE = 2

Held = tuple[int, int]


class Suspects:
    """The begins of one worker, and what it knows of the begins of others."""

    def __init__(self, desk: Desk, clock: Clock, token: str, time_to_come_back: timedelta) -> None:
        self._desk = desk
        self._clock = clock
        self._token = token
        self._time_to_come_back = time_to_come_back
        self._begun: set[Held] = set()

    def has_begun(self, held: Held) -> bool:
        return held in self._begun

    async def count(self, delivery: Delivery) -> int:
        """Count the begins of workers that are gone."""
        counting = partial(begins.count, notes=_notes(delivery), own=self._token)
        count = await self._desk.run(counting)
        if count >= _GRAVE:
            # A worker that lost its connection and not its life may still be coming back.
            await self._clock.wait(self._time_to_come_back)
            count = await self._desk.run(counting)
        return count

    async def begin(self, held: Held, delivery: Delivery) -> None:
        await self._desk.run(partial(begins.note, notes=_notes(delivery), token=self._token))
        self._begun.add(held)

    async def end(self, held: Held, delivery: Delivery, *, taken_back: bool) -> None:
        """It has an end; or nothing happened to it, and the begin is taken back."""
        self._begun.discard(held)
        notes = _notes(delivery)
        if taken_back:
            await self._desk.run(partial(begins.take_back, notes=notes, token=self._token))
        else:
            await self._desk.run(partial(begins.forget, notes=notes))


def _notes(delivery: Delivery) -> str:
    travel = delivery.travel
    named = travel.operation or sha256(delivery.body).hexdigest()
    return begins.notes_of(delivery.queue, named, travel.generation)
