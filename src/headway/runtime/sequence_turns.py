"""The turns of results: apply, complete, and go on with what that hands out."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Protocol

from headway.core.sequence_answers import Completed, Completion, Offer, Turn
from headway.core.sequence_facts import (
    KeyCleared,
    ResultFailed,
    ResultHeld,
    ResultReleased,
    StaleDropped,
    TurnLost,
)
from headway.core.sequence_fates import Disposition
from headway.ports.resequencing import SequenceWatcher
from headway.ports.sequences import Sequences
from headway.runtime.sequence_applying import ApplyAll, Stopped
from headway.runtime.sequence_leases import SequenceLeases
from headway.runtime.sequence_reach import Reach, SequencesAwayError


class Schedule(Protocol):
    """Has a key looked at later."""

    def __call__(self, key: str, delay: timedelta, *, again: bool) -> None: ...


class HeldKey:
    """One key that this worker has claimed, from its first turn to its last."""

    __slots__ = ("fate", "is_given_back", "is_refused", "look_in", "offer", "work")

    def __init__(self, work: Turn) -> None:
        self.work = work
        """What is to be done next."""
        self.offer: Offer | None = None
        """What was offered, if the first work is just that: the engine has not stored it."""
        self.fate = Disposition.LEFT
        """Of what was offered."""
        self.is_refused = False
        """What was offered is not this worker's any more: it has to be offered again."""
        self.is_given_back = False
        self.look_in: timedelta | None = None

    def as_offer(self) -> Offer:
        work, offer = self.work, self.offer
        if offer is not None and offer.position == work.position:
            return offer
        return Offer(work.key, work.position, work.payload, work.token)  # the engine knows the rest


class Turns:
    """Takes the turns of many keys in rounds: one call of the engine for all of them."""

    def __init__(
        self,
        sequences: Sequences,
        apply_all: ApplyAll,
        *,
        reach: Reach,
        leases: SequenceLeases,
        watcher: SequenceWatcher,
        schedule: Schedule,
    ) -> None:
        self._sequences = sequences
        self._apply_all = apply_all
        self._reach = reach
        self._leases = leases
        self._watcher = watcher
        self._schedule = schedule

    async def take(self, turns: Sequence[HeldKey], *, has_store: bool = False) -> None:
        """Go on until no key hands out anything more.

        With a store of the caller's own, what was applied counts even if the engine cannot be told:
        the next offer of the key says so.
        """
        while turns:
            ends = await self._applied(turns, has_store=has_store)
            done: list[HeldKey] = []
            for turn, error in zip(turns, ends, strict=True):
                if error is None:
                    done.append(turn)
                else:
                    await self._give_back(turn, error)
            turns = await self._completed(done, has_store=has_store)

    async def _applied(
        self, turns: Sequence[HeldKey], *, has_store: bool
    ) -> Sequence[BaseException | None]:
        works = [turn.work for turn in turns]
        try:
            async with self._leases.kept(works):
                return await self._apply_all(works)
        except Exception as error:  # noqa: BLE001 (whatever it is, it belongs to all of them)
            return [error] * len(works)
        except Stopped as stopped:
            await asyncio.shield(self._leave(turns, stopped.ends, has_store=has_store))
            raise asyncio.CancelledError from None  # some of Python's own look for no other class
        except BaseException:
            # Told to stop in the middle: somebody else may go on at once.
            await asyncio.shield(self._hand_back(turns))
            raise

    async def _completed(self, turns: Sequence[HeldKey], *, has_store: bool) -> list[HeldKey]:
        if not turns:
            return []
        done = [Completion(t.work.key, t.work.position, t.work.token) for t in turns]
        try:
            answers = await self._reach.ask(partial(self._sequences.complete, done))
        except SequencesAwayError:
            if not has_store:
                raise
            for turn in turns:
                self._settle(turn, Disposition.APPLIED)
            return []
        more = []
        for turn, answer in zip(turns, answers, strict=True):
            self._announce(turn.work, answer)
            if not answer.accepted:
                turn.is_refused = self._is_own(turn)
                continue
            self._settle(turn, Disposition.APPLIED)
            turn.look_in = answer.look_in
            if answer.work is not None:
                turn.work = answer.work
                more.append(turn)
        return more

    def _announce(self, work: Turn, answer: Completed) -> None:
        if not answer.accepted:
            self._watcher.tell(TurnLost(work.key, work.position))
            return
        if work.held and answer.released:  # else whoever dropped it has said so
            self._watcher.tell(ResultReleased(work.key, work.position))
        if answer.stale:
            self._watcher.tell(StaleDropped(work.key, answer.stale))
        if answer.cleared:
            self._watcher.tell(KeyCleared(work.key))

    async def _give_back(self, turn: HeldKey, error: BaseException) -> None:
        offer, work = turn.as_offer(), turn.work
        wait = await self._reach.ask(partial(self._sequences.give_back, offer))
        self._watcher.tell(ResultFailed(work.key, work.position, work.attempt, error, wait))
        if wait is None:
            turn.is_refused = self._is_own(turn)
            return
        self._settle(turn, Disposition.HELD)
        turn.is_given_back, turn.look_in = True, wait
        if not work.held:
            self._watcher.tell(ResultHeld(work.key, work.position, 1))
        self._schedule(work.key, wait, again=work.held)

    async def _leave(
        self, turns: Sequence[HeldKey], ends: Sequence[BaseException | None], *, has_store: bool
    ) -> None:
        """Complete what was applied all the same; the rest, and what comes next, is for others."""
        done = [turn for turn, end in zip(turns, ends, strict=True) if end is None]
        await self._hand_back([turn for turn in turns if turn not in done])
        with suppress(Exception):  # as below
            await self._hand_back(await self._completed(done, has_store=has_store))

    async def _hand_back(self, turns: Sequence[HeldKey]) -> None:
        for turn in turns:
            with suppress(Exception):  # the lease ends by itself; what ended this is to be raised
                await self._sequences.give_back(turn.as_offer(), timedelta())

    def _settle(self, turn: HeldKey, fate: Disposition) -> None:
        if self._is_own(turn):
            turn.fate = fate

    def _is_own(self, turn: HeldKey) -> bool:
        """Say whether the work at hand is what was offered, and no later one of its key."""
        return turn.offer is not None and turn.offer.position == turn.work.position
