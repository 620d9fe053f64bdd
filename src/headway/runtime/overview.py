"""Whether everything that was accepted is in its one place."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headway.core.event import short_name
from headway.ports.places import Astray, Balance, Places

_IN_QUEUES = ("ready", "leased", "delayed", "parked", "held")


class Verdict(StrEnum):
    """The answer."""

    OK = "ok"
    NOT_OK = "not ok"
    UNKNOWN = "unknown"
    """Nobody counted what was accepted, so nobody can say that nothing is missing.

    So it is where no service has ever run: an empty file may stand in for a full one.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Places, what was accepted, and the difference."""

    count: Balance
    places: Mapping[str, int | None]
    """How many are in each place. None: nobody can know."""
    astray: int
    """Operations that are not in exactly one place."""
    examples: Sequence[Astray]
    """The first of them."""
    against: int | None = None
    """How many operations of somebody's own list were looked for."""
    nowhere: Sequence[str] = ()
    """Those of them that were accepted and are in no place."""
    not_known: Sequence[str] = ()
    """Those of them that are in no known place: lost, forgotten, or never accepted."""
    not_yet: Sequence[str] = ()
    """Those of them of which nobody can know yet.

    They were not found, and either they may be among the events that still wait in queues into
    which nobody can look, or that a worker has in hand; or nothing here remembers what was done.
    """

    @property
    def total(self) -> int:
        """What is in all places that are known."""
        return sum(count or 0 for count in self.places.values())

    @property
    def difference(self) -> int | None:
        """What was accepted and is not there; below zero, what is there and should not be."""
        return None if self.count.accepted is None else self.count.accepted - self.total

    @property
    def verdict(self) -> Verdict:
        if self.difference or self.astray or self.nowhere or self.not_known:
            return Verdict.NOT_OK
        if self.not_yet or (self.difference is None and not self.against):
            return Verdict.UNKNOWN
        if not self.count.queues and not self.count.unrouted:
            return Verdict.UNKNOWN
        return Verdict.OK


async def verify(
    places: Places, *, against: Collection[str] | None = None, examples: int = 10
) -> Report:
    """Count every place and compare with what was accepted, and with a list of operations."""
    count = await places.balance()
    astray, named = await places.astray(examples)
    wanted = list(dict.fromkeys(map(short_name, against or ())))
    found = await places.where(wanted) if wanted else {}
    unfound = [each for each in wanted if each not in found]
    # Counted before the search: what waited then and was done since is found, or not known yet.
    hides = count.waiting or count.in_hand or not count.remembers
    can_know = count.accepted is not None or not hides
    return Report(
        count=count,
        places=sum_up(count),
        astray=astray,
        examples=named,
        against=None if against is None else len(wanted),
        nowhere=[each for each in wanted if each in found and not found[each]],
        not_known=unfound if can_know else (),
        not_yet=() if can_know else unfound,
    )


def sum_up(count: Balance) -> Mapping[str, int | None]:
    """Add up each place over all queues; None where nobody can know."""
    places: dict[str, int | None] = {
        place: sum(getattr(q, place) for q in count.queues) for place in _IN_QUEUES
    }
    if not count.counts_leased:
        places["leased"] = None
    done = count.done if count.remembers else None
    failed = sum(count.failed.values())
    return {**places, "unrouted": count.unrouted, "failed": failed, "done": done}
