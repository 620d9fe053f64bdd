"""What an operator is told of the order of results, and what a drain does, on a virtual clock."""

import logging
from datetime import timedelta

import pytest

from headway import ConfigurationError
from headway.operations import ResultOrder
from headway.order import OnGap, SequenceSettings
from headway.testing.chance import Seeded
from headway.testing.clock import VirtualClock
from headway.testing.engines import MemorySequences
from headway.testing.ports import Completion, Look, Offer, Offered

SECOND = timedelta(seconds=1)


class Bench:
    """Sequences in memory, and an operator before them."""

    def __init__(self, **settings: object) -> None:
        self.clock = VirtualClock()
        self.sequences = MemorySequences(self.clock, SequenceSettings(**settings))  # type: ignore[arg-type]
        self.order = ResultOrder(self.sequences, self.clock, Seeded(), who="ann@desk")
        self._tokens = 0

    async def offer(self, key: str, position: int, *, complete: bool = True) -> Offered:
        self._tokens += 1
        token = f"token-{self._tokens}"
        (answer,) = await self.sequences.offer([Offer(key, position, b"{}", token)])
        if answer.outcome == "process" and complete:
            await self.sequences.complete([Completion(key, position, token)])
        return answer

    async def hold(self, key: str, *positions: int) -> None:
        await self.offer(key, 1)
        for position in positions:
            assert (await self.offer(key, position)).outcome == "held"


async def test_a_key_that_waits_says_what_is_missing_since_when_and_until_when() -> None:
    bench = Bench()
    await bench.hold("a", 4, 5, 8)
    began = bench.clock.now()
    bench.clock.advance(15 * SECOND)
    report = await bench.order.explain("a")
    assert (report.standing.mode, report.standing.marker) == ("waiting", 1)
    assert (report.expected, report.standing.held) == (2, (4, 5, 8))
    assert [(gap.first, gap.last) for gap in report.gaps] == [(2, 3), (6, 7)]
    assert report.missing == 4
    assert report.standing.since == began
    assert report.standing.next_look == began + 30 * SECOND
    assert report.standing.gives_up == began + 180 * SECOND


async def test_a_key_in_flight_expects_what_is_in_flight_and_an_unknown_one_is_refused() -> None:
    bench = Bench()
    await bench.offer("a", 7, complete=False)
    await bench.offer("a", 8)
    report = await bench.order.explain("a")
    assert (report.standing.mode, report.expected, report.missing) == ("in flight", 7, 0)
    with pytest.raises(ConfigurationError, match=r"'unknown\\n'"):
        await bench.order.explain("unknown\n")


async def test_a_drain_releases_what_is_held_and_is_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    await bench.hold("a", 4, 6)
    with caplog.at_level(logging.INFO, "headway.operator"):
        report = await bench.order.drain(["a"])
    assert (report.done, report.chosen[0].missing) == (1, 3)
    (record,) = caplog.records
    assert record.__dict__["gaps"] == {"a": [[2, 3, 1], [5, 5, 1]]}
    assert (record.__dict__["missing"], record.__dict__["held"]) == (3, 2)
    assert record.__dict__["on_gap"] == "backfill"
    (looked,) = await bench.sequences.look([Look("a", "looker")])
    assert looked.work is not None
    assert looked.work.gap is not None
    assert (looked.work.position, list(looked.work.gap.positions())) == (4, [2, 3])


async def test_all_are_those_that_stand_before_a_gap() -> None:
    bench = Bench(on_gap=OnGap.PARK)
    await bench.hold("parked", 3)
    bench.clock.advance(181 * SECOND)
    await bench.sequences.look([Look("parked", "looker")])
    await bench.hold("waiting", 3)
    await bench.offer("busy", 1, complete=False)
    await bench.offer("busy", 2)
    report = await bench.order.drain()
    assert [each.key for each in report.chosen] == ["waiting", "parked"]
    assert (await bench.order.explain("parked")).standing.mode == "ready"
