"""Run the world of one seed and say what went wrong in it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.simulation.checking import check
from tests.chaos.simulation.engines import Parts
from tests.chaos.simulation.history import ViolationError
from tests.chaos.simulation.loop import run
from tests.chaos.simulation.world import World

HONEST = Parts()


def violations(seed: int, parts: Parts = HONEST, *, told: bool = False) -> tuple[list[str], str]:
    """Give the promises that were broken, and the story if there are any or it was asked for."""

    async def course() -> tuple[list[str], str]:
        world = World(seed, parts)
        await world.live()
        found = await check(world)
        return found, world.disks.history.told() if found or told else ""

    with silence():
        return run(course())


def simulate(seed: int, parts: Parts = HONEST) -> None:
    """Run one seed; raise with its story if a promise was broken."""
    found, story = violations(seed, parts)
    if found:
        listed = "\n".join(f"  {each}" for each in found[:20])
        raise ViolationError(
            f"seed {seed}:\n{listed}\n{story}\n"
            f"Run it alone: pytest tests/chaos/simulation --seed {seed}"
        )


@contextmanager
def silence() -> Iterator[None]:
    """Thousands of engines that do not answer would be logged, each with its traceback."""
    logger = logging.getLogger("headway")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
