"""Everything is in its one place: how the suites see it."""

from collections.abc import Mapping

from headway.ports.bus import Delivery
from headway.ports.engine import Engine
from headway.ports.places import Balance, Depths
from headway.testing.conformance.examples import publish, take_one
from headway.testing.conformance.harness import EngineHarness

PLACES = ("ready", "leased", "delayed", "parked", "held")


def places(count: Depths) -> dict[str, int]:
    """Sum up by place what all queues hold, without the places in which there is nothing."""
    sums = {place: sum(getattr(each, place) for each in count.queues) for place in PLACES}
    sums |= {"unrouted": count.unrouted, "failed": sum(count.failed.values())}
    if isinstance(count, Balance):
        sums |= {"done": count.done}
    return {place: number for place, number in sums.items() if number}


async def balanced(engine: Engine, expected: Mapping[str, int]) -> Balance:
    """Everything is where it is expected, and nothing else was accepted."""
    count = await engine.places.balance()
    assert places(count) == expected
    depths = await engine.places.depths()
    assert places(depths) == {place: n for place, n in expected.items() if place != "done"}
    assert (depths.queues, depths.failed) == (count.queues, count.failed)
    assert depths.workers == count.workers
    if count.accepted is not None:
        assert count.accepted == sum(expected.values())
    await nothing_astray(engine)
    return count


async def nothing_astray(engine: Engine) -> None:
    number, named = await engine.places.astray(10)
    assert (number, list(named)) == (0, [])


async def one_taken(harness: EngineHarness, engine: Engine, name: str = "a") -> Delivery:
    await publish(engine, name)
    return await take_one(harness, engine)
