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
class Count:
    """Every operation that was accepted, in its one place."""

    queues: Sequence[QueueCount]
    failed: Mapping[str, int]
    """Letters, by failed queue."""
    done: int
    purged: int = 0
    """Of the done, the ones whose letters a person removed."""
    accepted: int | None = None
    """Counted independently, when it was published. None: nobody can know."""
    workers: int | None = 0
    """Worker processes that are alive. None: nobody can know."""
    counts_leased: bool = True
    """False: what workers have in hand is in no count, and `leased` says nothing."""
    in_hand: bool = False
    """True: workers may have events in hand, and those are in no count."""
    remembers: bool = True
    """False: there are no records, so nobody knows what was done."""

    @property
    def waiting(self) -> int:
        """How many are in queues."""
        return sum(each.waiting for each in self.queues)


Fault = Literal["missing", "surplus", "twice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Astray:
    """An operation that is not in exactly one place."""

    operation: str
    queue: str
    fault: Fault
    places: tuple[str, ...] = field(default=())


class Places(Protocol):
    """Counts, without disturbing anybody."""

    async def count(self) -> Count:
        """Count every place at one instant."""
        ...

    async def astray(self, limit: int) -> tuple[int, Sequence[Astray]]:
        """Say how many operations are not in exactly one place, and name the first of them."""
        ...

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Name the places of each operation that is known, such as "ready in orders.order.placed".

        One that was accepted and is nowhere has none. One that is not in the answer was forgotten,
        or never accepted.
        """
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
