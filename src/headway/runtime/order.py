"""The order of results, as an operator works on it: see what waits for what, and end a wait."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from headway.core.errors import ConfigurationError
from headway.core.ids import checked_ids
from headway.core.sequence_settings import OnGap
from headway.core.sequence_state import Gap, KeyState, Why
from headway.core.sequence_waiting import Mode, Standing, standing
from headway.core.showing import shown
from headway.core.writes import Document
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.sequences import HeldResult, Reading, SequenceDesk
from headway.runtime.history import (
    IDS_KEPT,
    Change,
    Operator,
    Subject,
    checked_reason,
    read_history,
)

_UNKNOWN = KeyState()
_KEYS_SAID = 10
_GAPS_KEPT = 10
"""Gaps of each key that the history names."""
_STANDS = {Mode.WAITING, Mode.PARKED}


class UnknownKeyError(ConfigurationError):
    """No result of a key was ever offered, or the key was removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReport:
    """How a key stands, and when it was looked at."""

    key: str
    now: datetime
    """By the clock of the engine; all other times are by that clock too."""
    standing: Standing
    gaps: Sequence[Gap]
    """All of them, the first one included: what a drain would give up."""
    attempts: int
    """How often the result that comes next was handed out."""
    step: int | None
    """How far positions are apart; only what is held tells it."""

    @property
    def expected(self) -> int | None:
        """The position whose turn it is. None: the next one, whichever that is."""
        stands = self.standing
        if stands.missing is not None:
            return stands.missing.first
        if stands.flight is not None and stands.mode is Mode.IN_FLIGHT:
            return stands.flight.position
        return stands.head

    @property
    def missing(self) -> int:
        """Count the positions that are missing before something that is held."""
        return sum(gap.count for gap in self.gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderReport:
    """The keys that hold results."""

    count: int
    keys: Sequence[KeyReport]
    """The first of them, by when they have to be looked at."""
    names: Sequence[str] | None = None
    """Where no key holds anything: whose keys there are at all. None: that is not known."""


@dataclass(slots=True, kw_only=True)
class DrainReport:
    """What came of a drain; while it runs, what has come of it so far."""

    dry_run: bool
    chosen: list[KeyReport] = field(default_factory=list)
    """As they stood when it began."""
    done: int = 0
    """Of these, drained; in a dry run, those that would be."""
    meanwhile: list[str] = field(default_factory=list)
    """They held nothing any more when it was their turn."""
    holding_nothing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def facts(self) -> Mapping[str, Any]:
        """Give what the history keeps."""
        first = self.chosen[:IDS_KEPT]
        return {
            "chosen": len(self.chosen),
            "done": self.done,
            "meanwhile": len(self.meanwhile),
            "ids": [each.key for each in first],
            "missing": sum(each.missing for each in self.chosen),
            "held": sum(len(each.standing.held) for each in self.chosen),
            "gaps": {each.key: _bounds(each.gaps[:_GAPS_KEPT]) for each in first},
        }


OnDrain = Callable[[DrainReport], object]


class ResultOrder:
    """The sequences of an engine.

    Args:
        desk: Where they are.
        clock: When it is decided.
        chance: Names changes in the history.
        who: Who decides, for the history.
        where: Under which name, and in which place, for messages.
        are_own_settings: The settings of the desk are those of the workers; else they are only the
            usual ones, and what the workers do with a gap is not known.
    """

    def __init__(
        self,
        desk: SequenceDesk,
        clock: Clock,
        chance: Chance,
        *,
        who: str = "a program",
        where: str = "here",
        are_own_settings: bool = True,
    ) -> None:
        self.settings = desk.settings
        self.where = where
        self.on_gap = desk.settings.on_gap if are_own_settings else None
        """What becomes of a gap that is given up. None: that is not known."""
        self._desk = desk
        self._operator = Operator(who, desk.history, clock, chance)

    async def status(self, limit: int = 20) -> OrderReport:
        """Count the keys that hold results, and say of the first how they stand."""
        count, keys = await self._desk.waiting(limit)
        reports = [self._report(await self._desk.read(key)) for key in keys]
        # Of these some may have been cleared since they were named.
        names = None if count else await self._desk.families()
        held = [each for each in reports if each.standing.held]
        return OrderReport(count=count, keys=held, names=names)

    async def explain(self, key: str) -> KeyReport:
        """Say how a key stands: what it expects, holds and misses, since when and until when."""
        reading = await self._desk.read(key)
        if reading.state == _UNKNOWN:
            raise UnknownKeyError(
                f"the key '{shown(key)}' is not known {self.where}: no result of it was offered "
                "there, or it was removed"
            )
        return self._report(reading)

    async def contents(self, key: str, limit: int) -> Sequence[HeldResult]:
        """Give the first held results of a key, with what is in them."""
        return await self._desk.held(key, limit)

    async def drain(
        self,
        keys: Sequence[str] | None = None,
        *,
        reason: str = "",
        dry_run: bool = False,
        before: OnDrain | None = None,
        on_progress: OnDrain | None = None,
    ) -> DrainReport:
        """Stop waiting: give up all gaps of keys, so that what they hold is released in order.

        The settings of the sequences decide about the missing positions. The next worker that
        checks the key hands the results out; workers check all the time.

        Args:
            keys: Exactly these. None: all that stand before a gap; an empty list is refused.
            reason: Why, for the history.
            dry_run: Only say what would be done.
            before: Called with what is meant before anything is changed; if it raises, nothing is.
            on_progress: Called after each key.
        """
        reason, keys = checked_reason(reason), checked_ids("keys", keys)
        report = DrainReport(dry_run=dry_run)
        await self._choose(report, keys)
        if dry_run or not report.chosen:
            report.done = len(report.chosen)
            return report
        if before is not None:
            before(report)
        async with self._operator.recorded(self._change(report, keys, reason)):
            for each in report.chosen:
                if await self._desk.drain(each.key):
                    report.done += 1
                else:
                    report.meanwhile.append(each.key)
                if on_progress is not None:
                    on_progress(report)
        return report

    async def history(self, limit: int = 20) -> Sequence[Document]:
        """Give the latest drains of this resequencer, the newest first: who, when, what and why."""
        return await read_history(
            self._operator.history, limit, Subject.SEQUENCES, self._desk.family
        )

    def _change(self, report: DrainReport, keys: Sequence[str] | None, reason: str) -> Change:
        policy = {} if self.on_gap is None else {"on_gap": self.on_gap.value}
        few = ",".join((keys or ())[:_KEYS_SAID]) + ",..." * (len(keys or ()) > _KEYS_SAID)
        return Change(
            what="drain",
            subject=Subject.SEQUENCES,
            name=self._desk.family,
            selection="all" if keys is None else f"keys={few}",
            reason=reason,
            facts=lambda: {**report.facts(), **policy},
        )

    async def _choose(self, report: DrainReport, keys: Sequence[str] | None) -> None:
        if keys is None:
            count, _ = await self._desk.waiting(1)
            _, all_keys = await self._desk.waiting(max(count, 1))
            found = [self._report(await self._desk.read(key)) for key in all_keys]
            report.chosen += [each for each in found if each.standing.mode in _STANDS]
            return
        for key in keys:
            reading = await self._desk.read(key)
            if reading.state == _UNKNOWN:
                report.unknown.append(key)
            elif not reading.state.held:
                report.holding_nothing.append(key)
            else:
                report.chosen.append(self._report(reading))

    def _report(self, reading: Reading) -> KeyReport:
        state, now = reading.state, reading.now
        return KeyReport(
            key=reading.key,
            now=now,
            standing=standing(state, self.settings, now),
            gaps=_gaps(state, now, fill=self.settings.on_gap is not OnGap.SKIP),
            attempts=state.head().attempts if state.held else 0,
            step=state.head().step if state.held else None,
        )


def _bounds(gaps: Sequence[Gap]) -> list[list[int]]:
    return [[gap.first, gap.last, gap.step] for gap in gaps]


def _gaps(state: KeyState, now: datetime, *, fill: bool) -> Sequence[Gap]:
    """Give all gaps of a key: those between what was applied, or is, and what it holds."""
    found = []
    if state.flight is not None and state.is_live(now):
        state = replace(state, marker=max(state.flight.position, state.marker or 0))
    for held in state.held:
        count = state.missing_before(held.position, held.step, held.begins)
        if count:
            first, last = held.position - count * held.step, held.position - held.step
            found.append(Gap(first, last, held.step, Why.OPERATOR, fill))
        state = replace(state, marker=max(held.position, state.marker or 0))
    return found
