"""Many clients send at once, each one event at a time, and note what they were told."""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus

import httpx
import msgspec

from headway.clock import Chance, Clock, SystemChance, SystemClock
from headway.systems.ledger.events import Event

_MOST_SENDS = 30
_NO_ANSWER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of one event, as far as its sender knows."""

    event: Event
    status: int
    """Of the last answer; 0 where there was none."""
    stored: bool | None
    """None: the sender does not know."""
    sends: int
    seconds: float
    """From the first send to the last answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Senders:
    """Clients in parallel; `honour_retry_after` sends again what may be sent again."""

    http: httpx.AsyncClient
    clients: int
    honour_retry_after: bool
    clock: Clock = field(default_factory=SystemClock)
    chance: Chance = field(default_factory=SystemChance)

    async def send_all(
        self, events: Iterable[Event], on_answer: Callable[[], None] = lambda: None
    ) -> list[Delivery]:
        queue = iter(events)
        shares = await asyncio.gather(
            *(self._client(queue, on_answer) for _ in range(self.clients))
        )
        return [delivery for share in shares for delivery in share]

    async def _client(
        self, queue: Iterator[Event], on_answer: Callable[[], None]
    ) -> list[Delivery]:
        share = []
        for event in queue:
            share.append(await self._deliver(event))
            on_answer()
        return share

    async def _deliver(self, event: Event) -> Delivery:
        body = msgspec.json.encode(event)
        headers = {"Idempotency-Key": uuid.uuid4().hex, "Content-Type": "application/json"}
        began = time.perf_counter()
        sends = 0
        while True:
            sends += 1
            status, stored, pause = await self._send(body, headers)
            if pause is None or not self.honour_retry_after or sends == _MOST_SENDS:
                return Delivery(
                    event=event,
                    status=status,
                    stored=stored,
                    sends=sends,
                    seconds=time.perf_counter() - began,
                )
            # Everybody who was refused together would otherwise come back together.
            await self.clock.wait(pause * (1 + self.chance.draw()))

    async def _send(
        self, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bool | None, timedelta | None]:
        try:
            answer = await self.http.post("/api/v1/events", content=body, headers=headers)
        except httpx.TransportError:
            return _NO_ANSWER, None, timedelta(seconds=1)
        stored: bool | None = answer.status_code == HTTPStatus.CREATED
        if not stored and answer.json().get("error") == "outcome_unknown":
            stored = None
        asked = answer.headers.get("retry-after")
        return answer.status_code, stored, timedelta(seconds=int(asked)) if asked else None
