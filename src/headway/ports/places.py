"""Where everything is: the numbers behind `headway verify`, dashboards and the desk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCount:
    """What is in one queue. Every event is in exactly one of the first five.

    What is parked stays so until it is resumed or taken, even when it is due for a probe.
    """

    queue: str
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    parked: int = 0
    held: int = 0
    suspects: int = 0
    """Of all these, the ones that came back twice or more."""
    oldest: datetime | None = None
    """When the oldest that is ready became so."""

    @property
    def waiting(self) -> int:
        """How many are in it, whatever they wait for."""
        return self.ready + self.leased + self.delayed + self.parked + self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class Depths:
    """What waits: events by queue, and dead letters by failed queue."""

    queues: Sequence[QueueCount]
    failed: Mapping[str, int]
    """Dead letters, by failed queue."""
    workers: int | None = 0
    """Worker processes that are alive. None: the engine cannot know."""
    counts_leased: bool = True
    """False: events that workers have in hand are in no count, and `leased` says nothing."""
    in_hand: bool = False
    """True: workers may have events in hand that are in no count."""
    unrouted: int = 0
    """Events that no service takes: of a type without a queue."""

    @property
    def waiting(self) -> int:
        """How many are in queues."""
        return sum(each.waiting for each in self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance(Depths):
    """Every operation that was accepted, in its one place: what waits, and what is done."""

    done: int
    purged: int = 0
    """Of the done, the ones that a person removed: dead letters and unrouted events."""
    accepted: int | None = None
    """Counted independently, when it was published. None: the engine cannot know."""
    remembers: bool = True
    """False: there are no records, so the engine cannot know what was done."""

    @classmethod
    def of(
        cls,
        depths: Depths,
        *,
        done: int,
        purged: int = 0,
        accepted: int | None = None,
        remembers: bool = True,
    ) -> "Balance":
        """Add what is done to what waits."""
        return cls(
            queues=depths.queues,
            failed=depths.failed,
            workers=depths.workers,
            counts_leased=depths.counts_leased,
            in_hand=depths.in_hand,
            unrouted=depths.unrouted,
            done=done,
            purged=purged,
            accepted=accepted,
            remembers=remembers,
        )


Fault = Literal["missing", "surplus", "twice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Astray:
    """An operation that is not in exactly one place."""

    operation: str
    queue: str
    fault: Fault
    places: tuple[str, ...] = field(default=())


class BusPlaces(Protocol):
    """What a bus knows of what waits in it. Reading disturbs no worker."""

    async def depths(self) -> Depths:
        """Count what waits, at one instant, without reading what is done.

        Every scrape of metrics asks this, so its cost must not grow with what is stored: neither
        with records of what is done, nor with dead letters, nor with events that are ready.
        """
        ...

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Name the places of each operation that is known, such as "ready in orders.order.placed".

        One that was accepted and is nowhere has none. One that is not in the answer was forgotten,
        or never accepted.
        """
        ...


class Places(BusPlaces, Protocol):
    """What an engine knows of everything it accepted."""

    async def balance(self) -> Balance:
        """Count every place at one instant, row by row: for `headway verify`, not for scrapes."""
        ...

    async def astray(self, limit: int) -> tuple[int, Sequence[Astray]]:
        """Say how many operations are not in exactly one place, and name the first of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """An operation that failed, and the letter that waits for a decision about it."""

    operation: str
    queue: str
    letter_id: str
    failed_queue: str


class Ends(Protocol):
    """What the records of a store know, where queues and letters are kept elsewhere."""

    async def ping(self) -> None:
        """Raise unless the store answers; costs the same whatever is stored."""
        ...

    async def count(self) -> tuple[int, int]:
        """Say how many operations have ended for good, and how many of them were purged."""
        ...

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Name where each has ended for good, such as "done in orders.order.placed"."""
        ...

    async def undecided(self, limit: int) -> Sequence[Undecided]:
        """Give those that failed, whose letter was sent, and about which nobody has decided.

        The oldest first; not those that have come to another end since.
        """
        ...
