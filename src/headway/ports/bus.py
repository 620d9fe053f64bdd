"""The bus: who publishes, who takes, and how a delivery is settled.

Promises that every adapter keeps (the conformance suite in `headway.testing` checks them):

- What `publish` returned for is stored: a crash afterwards does not lose it. An event that no queue
  takes is stored as *unrouted* (`headway.ports.unrouted`).
- A delivery belongs to its taker until it is settled, or until the taker is known to be gone. Then
  it comes back, with `returns` one higher. Whoever lost it cannot settle it any more.
- What is due later is not given earlier, and holds up nothing else.
- One event id, published twice to a queue, may be delivered twice: done-records recognise it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from headway.core.travel import Travel
from headway.ports.unrouted import OnStep

SUSPECT_AFTER = 2
"""Returns that make an event a suspect: the first may well be a neighbour's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One service's queue for some types of events, and where its letters go."""

    name: str
    event_types: tuple[str, ...]
    failed: str


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event on its way into the bus."""

    body: bytes
    travel: Travel
    event_type: str = ""
    """Goes to every queue that takes this type, unless `queue` is given."""
    queue: str | None = None
    """Goes straight to this queue and to nobody else: retries, requeues and sweeps."""
    needs_consumer: bool = True
    """False: no service has to take it, and where none does it is dropped. These are the types that
    services name by `failed=` and `Service(announces=...)`."""


def unrouted_types(messages: Sequence[Message], taken_by: Sequence[int]) -> frozenset[str]:
    """Name the types of the messages that are kept as unrouted, given the answer of `publish`."""
    if 0 not in taken_by:
        return frozenset()
    return frozenset(
        message.event_type
        for message, queues in zip(messages, taken_by, strict=True)
        if not queues and message.needs_consumer
    )


class Delivery(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """An event in the hands of a worker."""

    queue: str
    body: bytes
    travel: Travel
    receipt: Any
    """What the adapter needs to settle it; nobody else looks inside."""
    returns: int = 0
    """How often it came back because its taker was gone."""
    begins: int = 0
    """How often it was begun as a suspect with no end since."""
    spoilt: str = ""
    """Why what travels beside it cannot be read."""


@dataclass(frozen=True, slots=True)
class Done:
    """It needs no more: take it out of the queue."""


@dataclass(frozen=True, slots=True)
class Later:
    """Keep it until `due`, with this beside it. Its returns and begins are forgotten."""

    due: datetime
    travel: Travel


@dataclass(frozen=True, slots=True)
class Parked:
    """As `Later`, counted as parked; `resume` makes it due at once, where `finds_parked`."""

    due: datetime
    travel: Travel


@dataclass(frozen=True, slots=True)
class HandedBack:
    """Ready again, as it was: nothing happened to it, and its returns stay counted.

    If it had been begun as a suspect, that begin is taken back.
    """

    due: datetime | None = None
    """Not before this; None: at once, and in its old place."""
    travel: Travel | None = None
    """With a due time: this beside it from now on; None: what was beside it."""


Then = Done | Later | Parked | HandedBack


class Bus(Protocol):
    """Where events wait and are taken. One object for each worker process."""

    atomic_publish: bool
    """True: `publish` stores all messages or none. False: each is stored by itself."""
    finds_parked: bool
    """True: `resume` makes parked events due at once. False: they come when they are due."""

    @property
    def worker(self) -> str:
        """Name this worker to others that ask whether it is `gone`: without a slash."""
        ...

    async def gone(self, workers: Collection[str]) -> Collection[str]:
        """Say which of these workers are gone; of those that it cannot know, none.

        A worker is gone when its process is seen dead, or when what shows that it lives (its queue,
        its heartbeat) has been absent for long enough while the engine was available. A worker
        that lost its connection and is back within 5 s is not gone. Ask again every moment: only
        absence that was watched counts.
        """
        ...

    def owns(self, delivery: Delivery) -> bool:
        """Say whether this worker could still settle a delivery, as far as it knows itself."""
        ...

    async def open(self, queues: Sequence[Queue], on_routed: OnStep | None = None) -> None:
        """Declare queues and what they take; safe to repeat. Nothing is taken from others.

        Events that wait as unrouted for a type that one of these queues takes move into it, once,
        in the same step as the declaration where the engine has one. Elsewhere `Unrouted.route`
        moves what was published between the publisher's look for a queue and its storing.
        `on_routed` is told of them, once for all where that can be, and also of those that move
        only later.
        """
        ...

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        """Store messages; for each, say how many queues took it. 0: no queue takes this type.

        A message that no queue took is stored as unrouted, in the same step and as durably, if it
        `needs_consumer`; else it is dropped.

        Nothing is sent if the engine knows beforehand that one of them cannot be stored. A message
        straight to a queue that was never declared raises ConfigurationError, one that cannot be
        written UnsendableError.

        With `atomic_publish`, an error means that nothing was stored, or with an engine that went
        away during the commit, that everything was. Without it, an error has the positions of what
        is stored (`UnsendableError.stored`, `NotPublishedError.stored`), and of the rest nothing
        is known. Callers publish all of it again under the same ids, which done-records recognise.
        """
        ...

    async def take(
        self, queues: Sequence[str], limit: int, patience: timedelta = timedelta()
    ) -> Sequence[Delivery]:
        """Take at most `limit` that are due, the oldest first; wait up to `patience` for one."""
        ...

    async def begin(self, delivery: Delivery) -> bool:
        """Record durably that a suspect is begun; False: it belongs to somebody else by now."""
        ...

    async def settle(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        """Settle each; False where the delivery belongs to somebody else by now."""
        ...

    async def resume(self, queue: str) -> int:
        """Make what is parked in a queue due at once; say how many. Without `finds_parked`, 0."""
        ...

    async def announce(
        self, service: str, version: str, queues: Sequence[str], grace: timedelta
    ) -> None:
        """Show others which version of a service takes from its queues here; safe to repeat.

        They see it while this process is alive, and for `grace` after it was last seen alive.
        """
        ...

    async def live_versions(self, queue: str) -> Collection[str]:
        """Name the versions that take from a queue and were alive within their grace."""
        ...

    async def proven(self) -> datetime | None:
        """Say when it was last seen that what is published would reach this process.

        None: not yet. To be connected is not enough.
        """
        ...

    async def hand_back_all(self, keep: Sequence[Delivery]) -> None:
        """Hand back what is taken except `keep`, which comes back as after a crash; take no more.

        For a process that is about to end because its event loop is blocked: this runs in another
        thread, in an event loop of its own.
        """
        ...

    async def close(self) -> None:
        """Hand back what is still taken and let go of everything."""
        ...
