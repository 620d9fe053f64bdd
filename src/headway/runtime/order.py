"""The order of results, as an operator works on it: see what waits for what, and end a wait."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from headway.core.errors import ConfigurationError
from headway.core.sequence_settings import OnGap
from headway.core.sequence_state import Gap, KeyState, Why
from headway.core.sequence_waiting import Mode, Standing, standing
from headway.core.showing import shown
from headway.ports.sequences import HeldResult, Reading, SequenceDesk

_LOG = logging.getLogger("headway.operator")
_UNKNOWN = KeyState()
_STANDS = {Mode.WAITING, Mode.PARKED}


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


OnDrain = Callable[[DrainReport], object]


class ResultOrder:
    """The sequences of an engine.

    Args:
        desk: Where they are.
        who: Who decides, for the record of every change (the log `headway.operator`).
        where: Under which name, and in which place, for messages.
        are_own_settings: The settings of the desk are those of the workers; else they are only the
            usual ones, and what the workers do with a gap is not known.
    """

    def __init__(
        self,
        desk: SequenceDesk,
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
        self._who = who

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
            raise ConfigurationError(
                f"the key '{shown(key)}' is not known {self.where}: no result of it was offered "
                "there, or it was removed; headway order status names keys that hold results"
            )
        return self._report(reading)

    async def contents(self, key: str, limit: int) -> Sequence[HeldResult]:
        """Give the first held results of a key, with what is in them."""
        return await self._desk.held(key, limit)

    async def drain(
        self,
        keys: Sequence[str] = (),
        *,
        dry_run: bool = False,
        before: OnDrain | None = None,
        on_progress: OnDrain | None = None,
    ) -> DrainReport:
        """Stop waiting: give up all gaps of keys, so that what they hold is released in order.

        What becomes of the positions that are missing is the sequences' own policy. Whoever looks
        next hands the results out: workers look all the time.

        Args:
            keys: Which. None of them: all that stand before a gap.
            dry_run: Only say what would be done.
            before: Called with what is meant before anything is changed; if it raises, nothing is.
            on_progress: Called after each key.
        """
        report = DrainReport(dry_run=dry_run)
        await self._choose(report, keys)
        if dry_run:
            report.done = len(report.chosen)
            return report
        if before is not None and report.chosen:
            before(report)
        for each in report.chosen:
            if await self._desk.drain(each.key):
                report.done += 1
                self._record(each)
            else:
                report.meanwhile.append(each.key)
            if on_progress is not None:
                on_progress(report)
        return report

    async def _choose(self, report: DrainReport, keys: Sequence[str]) -> None:
        if not keys:
            count, _ = await self._desk.waiting(1)
            _, all_keys = await self._desk.waiting(max(count, 1))
            found = [self._report(await self._desk.read(key)) for key in all_keys]
            report.chosen += [each for each in found if each.standing.mode in _STANDS]
            return
        for key in dict.fromkeys(keys):
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

    def _record(self, drained: KeyReport) -> None:
        policy = {} if self.on_gap is None else {"on_gap": self.on_gap.value}
        _LOG.info(
            "drain of %s by %s: %d missing given up%s, %d held released",
            shown(drained.key),
            shown(self._who),
            drained.missing,
            "".join(f" ({each})" for each in policy.values()),
            len(drained.standing.held),
            extra={
                "operator": self._who,
                "change": "drain",
                "key": drained.key,
                "missing": [[gap.first, gap.last, gap.step] for gap in drained.gaps],
                "held": len(drained.standing.held),
                **policy,
            },
        )


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
