"""Headway: whose turn it is and that it is done, each one decision of one script.

It runs in an event loop and the plain commands do not, which is dearer for one call at a time.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmarks.ordering.results import STEP, Monitors, Result
from headway.clock import SystemChance
from headway.core.sequence_answers import Outcome
from headway.order import SequenceSettings, Turn
from headway.testing.engines import redis_sequences
from headway.testing.ports import Completion, KeyState, Offer

AT_ONCE = 200
_SAMPLE = 1_000


class Ordered:
    """The sequences of some monitors, driven from a loop of its own."""

    def __init__(self, url: str, monitors: Monitors) -> None:
        self.monitors = monitors
        self._loop = asyncio.Runner()
        self._sequences = redis_sequences(url, SequenceSettings())
        self._chance = SystemChance()

    def in_turn(self, results: Sequence[Result], at_once: int) -> None:
        """Offer, apply and complete so many at a time."""
        self._loop.run(self._in_turn(results, at_once))

    def hold(self, results: Sequence[Result]) -> None:
        """Offer results that are out of turn."""
        self._loop.run(self._hold(results))

    def drain(self, missing: Sequence[Result], behind: int) -> None:
        """Offer what was missing: so many results that were held behind each have to follow it."""
        self._loop.run(self._drain(missing, behind))

    def check(self) -> None:
        """Raise if anything is held, or a key is not where its last result leaves it."""
        self._loop.run(self._check())

    def size_of(self, key: str) -> tuple[int, int]:
        """Bytes of a key's state and of its backlog, as the server tells them for each alone."""
        backlog, task = self._sequences.names(key)
        return self._usage(task), self._usage(backlog)

    def client_call(self, name: str, *arguments: Any) -> Any:
        return self._loop.run(_awaited(getattr(self._sequences.client, name)(*arguments)))

    def close(self) -> None:
        self._loop.run(self._sequences.close())
        self._loop.close()

    def _usage(self, name: str) -> int:
        return self.client_call("memory_usage", name, 0) or 0

    def _offer(self, result: Result) -> Offer:
        return Offer(result.key, result.position, result.payload, self._chance.token(), STEP)

    async def _in_turn(self, results: Sequence[Result], at_once: int) -> None:
        for start in range(0, len(results), at_once):
            offers = [self._offer(result) for result in results[start : start + at_once]]
            answers = await self._sequences.offer(offers)
            done = []
            for answer in answers:
                work = answer.work
                if work is None or answer.outcome is not Outcome.PROCESS:
                    raise RuntimeError(f"not in its turn: {answer}")
                done.append(_completion(work))
            for completed in await self._sequences.complete(done):
                if not completed.accepted or completed.held:
                    raise RuntimeError(f"not completed, or not the only one: {completed}")

    async def _hold(self, results: Sequence[Result]) -> None:
        answers = await self._sequences.offer([self._offer(result) for result in results])
        wrong = [each for each in answers if each.outcome is not Outcome.HELD or each.work]
        if wrong:
            raise RuntimeError(f"{len(wrong)} were not just held, as {wrong[0]}")

    async def _drain(self, missing: Sequence[Result], behind: int) -> None:
        answers = await self._sequences.offer([self._offer(result) for result in missing])
        works = [answer.work for answer in answers if answer.work is not None]
        applied = 0
        while works:
            applied += len(works)
            done = await self._sequences.complete([_completion(work) for work in works])
            works = [each.work for each in done if each.work is not None]
        if applied != len(missing) * (1 + behind):
            raise RuntimeError(f"{applied} results were applied, not {len(missing)} x {behind + 1}")

    async def _check(self) -> None:
        holding, _ = await self._sequences.waiting(0)
        if holding:
            raise RuntimeError(f"{holding} keys hold results at the end")
        keys = self.monitors.keys
        for key in keys[:: max(len(keys) // _SAMPLE, 1)]:
            state = (await self._sequences.read(key)).state
            if state != KeyState(self.monitors.last(key)):
                raise RuntimeError(f"{key} is not idle at {self.monitors.last(key)}: {state}")


def _completion(work: Turn) -> Completion:
    return Completion(work.key, work.position, work.token)


async def _awaited(call: Any) -> Any:
    return await call
