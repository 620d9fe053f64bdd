"""A worker that lives and gets nothing says so."""

from datetime import datetime, timedelta
from typing import cast

from headway.facts import Fact, ReachChanged, Reached
from headway.runtime.reach import Reach
from headway.testing.clock import VirtualClock
from headway.testing.ports import Bus


class Proofs:
    """A bus of which only the proof is asked for."""

    def __init__(self) -> None:
        self.last: datetime | None = None
        self.broken = False

    async def proven(self) -> datetime | None:
        if self.broken:
            raise ConnectionError("the broker is away")
        return self.last


async def looks(reach: Reach, clock: VirtualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(timedelta(seconds=1))
        await reach.look()


async def test_silence_is_told_once_and_its_end_too() -> None:
    clock, bus, told = VirtualClock(), Proofs(), list[Fact]()
    reach = Reach(cast(Bus, bus), ["shop", "mail"], clock, told.append)
    bus.last = clock.now()
    await reach.look()
    assert [fact for fact in told if isinstance(fact, Reached)] == [
        Reached(service="shop", at=bus.last),
        Reached(service="mail", at=bus.last),
    ]
    await looks(reach, clock, 30)
    assert not any(isinstance(fact, ReachChanged) for fact in told)
    await looks(reach, clock, 20)
    bus.broken = True
    await looks(reach, clock, 20)
    changes = [fact for fact in told if isinstance(fact, ReachChanged)]
    assert [(fact.service, fact.silent) for fact in changes] == [("shop", True), ("mail", True)]
    bus.broken, bus.last = False, clock.now()
    await reach.look()
    changes = [fact for fact in told if isinstance(fact, ReachChanged)][2:]
    assert [(fact.service, fact.silent) for fact in changes] == [("shop", False), ("mail", False)]
    assert {fact.lasted for fact in changes} == {timedelta(seconds=70)}


async def test_a_worker_that_was_never_reached_is_silent_too() -> None:
    clock, told = VirtualClock(), list[Fact]()
    reach = Reach(cast(Bus, Proofs()), ["shop"], clock, told.append)
    await looks(reach, clock, 31)
    assert [fact.silent for fact in told if isinstance(fact, ReachChanged)] == [True]
    assert not any(isinstance(fact, Reached) for fact in told)
