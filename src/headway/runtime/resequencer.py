"""Results of each key, applied in their order, one at a time.

A result is offered; if it is its turn it is applied and completed, and completing it hands out the
next one that is held. So the arrival of what was missing drains a key at once, in the worker that
brought it. Looks at due keys only decide when to stop waiting, and find what a dead worker left.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from headway.core.sequence_answers import Look, Looked, Offer, Offered, Outcome
from headway.core.sequence_facts import (
    GapGivenUp,
    KeyCleared,
    ResultHeld,
    ResultsPassed,
    StaleDropped,
)
from headway.core.sequence_fates import Disposition, Result
from headway.core.showing import described
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.resequencing import LookScheduler, SequenceWatcher
from headway.ports.sequences import Sequences
from headway.runtime.sequence_applying import ApplyAll
from headway.runtime.sequence_leases import SequenceLeases
from headway.runtime.sequence_reach import Reach, SequencesAwayError
from headway.runtime.sequence_scheduling import Looks
from headway.runtime.sequence_turns import HeldKey, Turns
from headway.runtime.sequence_watchers import SequenceWatchers

T = TypeVar("T")
Otherwise = Callable[[Sequence[Result]], Awaitable[None]]
"""Processes results without their order, while the engine is away."""
Wanted = Callable[[Sequence[str]], Awaitable[Sequence[str]]]
"""Gives those keys that are still of use, before they are looked at; it may forget the others."""
Progress = Callable[[], datetime | None]
"""Says until when all that reached the source has been offered; None: until now."""

_LOG = logging.getLogger("headway")
_OFFERS_AGAIN = 3
_LATE = 5
"""A fifth of the first wait: tasks are never on time to the second."""
PATIENCE = timedelta(seconds=10)
LOOK_EVERY = timedelta(seconds=1)
_KEYS_AT_ONCE = 100


class BatchResequencer:
    """Apply results of many keys in their order, on an engine and a clock that you open.

    `headway.Resequencer` is the same for one function and one URL.
    """

    def __init__(
        self,
        sequences: Sequences,
        apply_all: ApplyAll,
        *,
        clock: Clock,
        chance: Chance,
        watchers: Sequence[SequenceWatcher] = (),
        scheduler: LookScheduler | None = None,
        otherwise: Otherwise | None = None,
        wanted: Wanted | None = None,
        progress: Progress | None = None,
        patience: timedelta = PATIENCE,
        together: bool = True,
        renewing: bool = True,
    ) -> None:
        """Take what it drives.

        Args:
            sequences: The engine.
            apply_all: Applies results of different keys, and says for each what it raised, if it
                did.
            clock: For the pauses only: what is due is decided by the engine's own.
            chance: Makes tokens.
            watchers: Hear what happened; one that raises disturbs neither the work nor the others.
            scheduler: Has keys looked at later; without one, somebody has to `run` this.
            otherwise: Takes results while the engine is away; without it that is raised, and the
                source has to keep them.
            wanted: Sorts out keys that nobody needs any more, before looks.
            progress: How far the source was read, for looks.
            patience: How long everything waits for an engine that is away.
            together: Apply all keys of a batch in one call; else each key goes on by itself.
            renewing: Renew leases; not where time is virtual and the engine is real.
        """
        self.sequences = sequences
        self._clock = clock
        self._chance = chance
        self._watcher = watcher = SequenceWatchers(*watchers)
        self._looks = Looks(scheduler, watcher)
        self._otherwise = otherwise
        self._wanted = wanted
        self._progress = progress
        self._together = together
        self._reach = Reach(clock, patience, watcher, lambda: sequences.due(0))
        leases = SequenceLeases(sequences, clock, renewing=renewing)
        self._turns = Turns(
            sequences,
            apply_all,
            reach=self._reach,
            leases=leases,
            watcher=watcher,
            schedule=self._looks.schedule,
        )
        self._stopped = asyncio.Event()

    async def offer(self, results: Sequence[Result]) -> list[Disposition]:
        """Take results in whatever order they came; say for each what became of it."""
        fates = [Disposition.LEFT] * len(results)
        in_order = sorted(range(len(results)), key=lambda at: results[at].position)
        if not self._together:
            await self._offer(results, in_order, fates)
            return fates
        waiting: dict[str, deque[int]] = {}
        for at in in_order:
            waiting.setdefault(results[at].key, deque()).append(at)
        while waiting:
            # One of each key at a time: those behind it would only be held for its sake.
            now = {key: behind.popleft() for key, behind in waiting.items()}
            await self._offer(results, list(now.values()), fates)
            held = [key for key, at in now.items() if fates[at] is Disposition.HELD]
            rest = [at for key in held for at in waiting.pop(key)]
            if rest:
                await self._offer(results, rest, fates)
            waiting = {key: behind for key, behind in waiting.items() if behind}
        return fates

    async def _offer(
        self, results: Sequence[Result], some: list[int], fates: list[Disposition]
    ) -> None:
        """Offer some of the results, and note what becomes of them."""
        for _ in range(_OFFERS_AGAIN):
            offers = {at: self._offer_of(results[at]) for at in some}
            try:
                some = await self._offered(offers, fates)
            except SequencesAwayError:
                if self._otherwise is None:
                    raise
                await self._otherwise([results[at] for at in some])
                self._watcher.tell(ResultsPassed(len(some)))
                for at in some:
                    fates[at] = Disposition.PASSED
                return
            if not some:
                return

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask the engine something else, with the same patience as for everything."""
        return await self._reach.ask(question)

    async def look(self, key: str, *, in_time: bool = False) -> timedelta | None:
        """Look at one key, as a scheduled task does; say when to look again, if at all.

        With `in_time` only a look that comes when the schedule says has another one scheduled.
        """
        wait = (await self._look([key], in_time=in_time)).get(key)
        await self.scheduled()
        return wait

    async def look_at_due(self, limit: int = _KEYS_AT_ONCE) -> int:
        """Look at the keys whose time has come; say how many they were."""
        keys = await self._reach.ask(lambda: self.sequences.due(limit))
        if keys:
            await self._look(keys)
        return len(keys)

    async def run(self, every: timedelta = LOOK_EVERY) -> None:
        """Look at due keys again and again until told to stop."""
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            while not self._stopped.is_set():
                try:
                    more = await self.look_at_due() == _KEYS_AT_ONCE
                except SequencesAwayError:
                    more = False  # said already; the next round asks again
                # Whatever a store raises: without looks, keys would wait for ever.
                except Exception as error:  # noqa: BLE001
                    _LOG.warning(
                        "A look at what is due failed, and the next one tries again: %s",
                        described(error),
                    )
                    more = False
                if more:
                    continue
                pause = asyncio.create_task(self._clock.wait(every))
                await asyncio.wait({pause, stopping}, return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
        finally:
            stopping.cancel()

    def stop(self) -> None:
        """End `run` after what it is at."""
        self._stopped.set()

    async def scheduled(self) -> None:
        """Wait until every look that was asked for is scheduled, or could not be."""
        await self._looks.settled()

    async def close(self) -> None:
        self.stop()
        await self.scheduled()
        await self._reach.close()
        await self.sequences.close()

    def _offer_of(self, result: Result) -> Offer:
        return Offer(
            result.key,
            result.position,
            result.payload,
            self._chance.token(),
            result.step,
            result.begins,
            result.applied,
            result.caught_up,
        )

    async def _offered(self, offers: dict[int, Offer], fates: list[Disposition]) -> list[int]:
        """Offer, and do the work that comes of it; give those that have to be offered again."""
        asked = list(offers.values())
        answers = await self._reach.ask(lambda: self.sequences.offer(asked))
        turns: list[HeldKey] = []
        own: dict[int, HeldKey] = {}
        for (at, offer), answer in zip(offers.items(), answers, strict=True):
            if answer.outcome is Outcome.UNREADABLE:
                continue  # it is left to its source; all others go on
            fates[at] = (
                Disposition.DUPLICATE if answer.outcome is Outcome.DUPLICATE else Disposition.HELD
            )
            self._note(offer, answer)
            if answer.work is None:
                continue
            turn = HeldKey(answer.work)
            turns.append(turn)
            if answer.outcome is Outcome.PROCESS:
                turn.offer, own[at] = offer, turn
        await self._take(turns, has_store=self._otherwise is not None)
        for turn in turns:
            if turn.look_in is not None and not turn.is_given_back:
                self._looks.schedule(turn.work.key, turn.look_in, again=True)
        again = []
        for at, turn in own.items():
            fates[at] = turn.fate
            if turn.is_refused:
                again.append(at)
        return again

    def _note(self, offer: Offer, answer: Offered) -> None:
        if answer.stale:
            self._watcher.tell(StaleDropped(offer.key, answer.stale))
            if not answer.held:
                self._watcher.tell(KeyCleared(offer.key))
        if answer.given_up is not None:
            self._watcher.tell(GapGivenUp(offer.key, answer.given_up, answer.held))
        if answer.outcome is not Outcome.HELD or answer.again:
            return
        self._watcher.tell(ResultHeld(offer.key, offer.position, answer.held))
        if answer.held == 1 and answer.look_in is not None:
            self._looks.schedule(offer.key, answer.look_in, again=False)

    async def _look(self, keys: Sequence[str], *, in_time: bool = False) -> dict[str, timedelta]:
        """Look at keys; say for each that waits for something when to look again."""
        if self._wanted is not None:
            keys = await self._wanted(keys)
        if not keys:
            return {}
        caught_up = None if self._progress is None else self._progress()
        looks = [Look(key, self._chance.token(), caught_up) for key in keys]
        answers = await self._reach.ask(lambda: self.sequences.look(looks))
        turns: dict[str, HeldKey] = {}
        for look, answer in zip(looks, answers, strict=True):
            if answer.given_up is not None:
                self._watcher.tell(GapGivenUp(look.key, answer.given_up, answer.held))
            if answer.work is not None:
                turns[look.key] = HeldKey(answer.work)
        await self._take(list(turns.values()))
        waits = {}
        for look, answer in zip(looks, answers, strict=True):
            turn = turns.get(look.key)
            wait = answer.look_in if turn is None else turn.look_in
            if wait is None or (turn is None and in_time and self._is_between(answer)):
                continue
            waits[look.key] = wait
            if turn is None or not turn.is_given_back:  # whoever gave it back has scheduled that
                self._looks.schedule(look.key, wait, again=True)
        return waits

    def _is_between(self, answer: Looked) -> bool:
        """Say whether a look came well after the one that the schedule had before it."""
        schedule = self.sequences.settings.schedule
        if answer.attempt >= len(schedule):
            return False  # its time is over, and we are behind: waits are shorter than these
        wait = schedule[answer.attempt]
        return answer.look_in is not None and wait - answer.look_in > schedule[0] / _LATE

    async def _take(self, turns: Sequence[HeldKey], *, has_store: bool = False) -> None:
        if self._together or len(turns) < 2:  # noqa: PLR2004 (one needs no company)
            await self._turns.take(turns, has_store=has_store)
            return
        taken = (self._turns.take([turn], has_store=has_store) for turn in turns)
        for end in await asyncio.gather(*taken, return_exceptions=True):
            if end is not None:  # after all others have come to their end
                raise end
