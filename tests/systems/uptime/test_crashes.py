"""A worker dies before or after each durable step, once each; another one goes on."""

from typing import Any

import pytest

from headway.order import SequenceSettings
from headway.systems.uptime.processor import ResultProcessor
from tests.systems.uptime.sites import FOUR, Site, check

# Late by one, late by two, one that comes again, and a pair in one batch.
BATCHES = [[0], [2], [1], [5, 3], [4], [4], [7], [6, 8]]
_STEPS = {"offer", "complete", "look", "due", "give_back", "apply"}


class Died(BaseException):
    """The process is gone: no code catches this, and nothing is done afterwards."""


class Life:
    """Counts the durable steps of a worker, and ends it before or after one of them."""

    def __init__(self, ends_at: int, *, after: bool) -> None:
        self._ends_at = ends_at
        self._after = after
        self.steps = 0
        self.is_over = False

    def lived_by(self, engine: Any) -> Any:
        return _Mortal(engine, self)

    async def step(self, method: Any, given: Any) -> Any:
        if self.is_over:
            raise Died
        self.steps += 1
        self.is_over = self.steps == self._ends_at
        if self.is_over and not self._after:
            raise Died
        answer = await method(*given)
        if self.is_over:
            raise Died
        return answer


class _Mortal:
    def __init__(self, engine: Any, life: Life) -> None:
        self._engine = engine
        self._life = life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        if name not in _STEPS:
            return found

        async def step(*given: Any) -> Any:
            return await self._life.step(found, given)

        return step


async def _play(site: Site, life: Life) -> None:
    """Send all batches; a worker that dies is replaced, and its batch comes again."""
    mortal = life.lived_by(site.sequences())
    workers: list[ResultProcessor] = [
        site.consumer(sequences=mortal, store=life.lived_by(site.store)),
        site.consumer(),
    ]
    for batch in BATCHES:
        raws = [check(FOUR + minute) for minute in batch]
        try:
            await workers[0].handle_results(raws)
            await workers[0].backlog.look_at_due()
        except Died:
            workers.pop(0)
            await workers[0].handle_results(raws)
    # Longer than a lease, and not as long as a wait for a gap.
    await site.pass_time(workers[-1], SequenceSettings().lease.total_seconds() + 15)


async def _steps_in_all(site: Site) -> int:
    life = Life(0, after=False)
    await _play(site, life)
    return life.steps


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_worker_that_dies_at_any_step_loses_nothing_and_applies_nothing_twice(
    memory: Site, *, after: bool
) -> None:
    steps = await _steps_in_all(memory)
    assert steps > 30
    for step in range(1, steps + 1):
        site = Site("memory", memory.folder)
        await site.open()
        await _play(site, Life(step, after=after))
        applied, missed = await site.applied(), await site.missed()
        assert applied == [*range(FOUR, FOUR + 9)], f"step {step}: {applied}"
        assert missed == [], f"step {step}: {missed}"
        assert (await site.store.totals()).applied == 9, f"step {step}"
        assert (await site.sequences().waiting(1))[0] == 0, f"step {step}"
