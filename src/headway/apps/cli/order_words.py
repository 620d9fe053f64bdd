"""What happens to a key next, when, and what else could happen, in words."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from headway.apps.cli.screen import many, when
from headway.core.sequence_settings import OnGap, SequenceSettings
from headway.core.sequence_state import Gap
from headway.core.sequence_waiting import Mode
from headway.runtime.order import KeyReport

_MILLISECONDS = range(1_000_000_000_000, 4_102_444_800_000)
"""Instants from 2001 to 2100: whoever has such positions so far apart means times."""
_A_SECOND = 1_000
_STEPS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_ROUGHLY = 2
_BEHIND = "unless the source says that we are behind it ourselves"


def next_steps(report: KeyReport, settings: SequenceSettings) -> str:
    """Say what happens next and when, and what else could happen."""
    return " ".join(_sentences(report, settings))


def _sentences(report: KeyReport, settings: SequenceSettings) -> Iterator[str]:
    stands, now = report.standing, report.now
    held = many(len(stands.held), "held result")
    match stands.mode:
        case Mode.IDLE:
            yield "Nothing waits: the next result in order is processed when it comes."
        case Mode.IN_FLIGHT:
            if stands.held:
                yield f"When it is done, {held} can be handed to the same worker."
            until = stands.flight.until if stands.flight is not None else None
            yield f"If its worker died, somebody else may take it over {at(until, now)}."
        case Mode.READY:
            yield f"Whoever looks next takes it ({at(stands.next_look, now)}). Workers look all the"
            yield "time: if it stays, none is running."
        case Mode.PAUSED:
            yield f"It is tried again {at(stands.next_look, now)}; the others wait behind it."
            yield 'The error is in the log of the worker that tried it ("could not be applied").'
        case Mode.PARKED:
            yield "It stands still until what is missing comes, or until a person drains the key."
        case Mode.WAITING:
            yield f"When what is missing comes, {held} can follow at once."
            yield from _when_given_up(report, settings)


def _when_given_up(report: KeyReport, settings: SequenceSettings) -> Iterator[str]:
    stands, now = report.standing, report.now
    then = given_up(report.standing.missing, settings.on_gap)
    if stands.gives_up is not None and stands.gives_up > now:
        yield f"The next look is {at(stands.next_look, now)}."
        yield f"If nothing comes, {then} {at(stands.gives_up, now)}, {_BEHIND}."
    else:
        yield f"Its time is over: at the next look, {at(stands.next_look, now)}, {then}, {_BEHIND}."
    left = settings.breaker - len(stands.held)
    if left > 0:
        yield f"The same happens at once if {left} more come ({settings.breaker} held in all)."


def given_up(gap: Gap | None, on_gap: OnGap) -> str:
    """Say what becomes of a gap that is given up."""
    count = 0 if gap is None else gap.count
    are = "is" if count == 1 else "are"
    match on_gap:
        case OnGap.BACKFILL:
            return f"{many(count, 'position')} {are} made up as missed"
        case OnGap.SKIP:
            return f"{many(count, 'position')} {are} skipped"
        case OnGap.PARK:
            return "the key is parked, for a person to decide"


def meaning(report: KeyReport) -> str:
    """Say what a mode is of this key."""
    step = report.step
    expected = "" if report.expected is None else position(report.expected, step)
    match report.standing.mode:
        case Mode.IDLE:
            return "everything that came was applied"
        case Mode.IN_FLIGHT:
            return f"a worker is at {expected}"
        case Mode.READY:
            return f"it is the turn of {expected}, which is held, and nobody is at it"
        case Mode.PAUSED:
            tries = many(report.attempts, "attempt")
            return f"{expected} could not be applied, after {tries}"
        case Mode.PARKED:
            return "what is missing did not come, and a person has to decide"
        case Mode.WAITING:
            return "results are held behind one that is missing"


def position(number: int, step: int | None) -> str:
    """Write a position; one that is a time in milliseconds as the time, too.

    >>> position(7, 1), position(1_000_000_060_000, 60_000)
    ('7', '1000000060000 (2001-09-09 01:47:40Z)')
    """
    time = short_position(number, step)
    return time if time == str(number) else f"{number} ({time})"


def short_position(number: int, step: int | None) -> str:
    """Write a position; one that is a time in milliseconds as the time only."""
    if number not in _MILLISECONDS or step is None or step < _A_SECOND:
        return str(number)
    return when(datetime.fromtimestamp(number / _A_SECOND, UTC))


def gap_words(gap: Gap) -> str:
    """Name the positions of a gap."""
    first = position(gap.first, gap.step)
    return first if gap.count == 1 else f"{first} to {position(gap.last, gap.step)}"


def at(instant: datetime | None, now: datetime) -> str:
    """Say when, and how far that is."""
    if instant is None:
        return "never"
    if instant <= now:
        return "now"
    return f"in {span(instant - now)}, at {when(instant)[11:]}"


def span(time: timedelta) -> str:
    """Say how long, roughly.

    >>> span(timedelta(seconds=95)), span(timedelta(days=2, minutes=3)), span(timedelta())
    ('1 min 35 s', '2 d', '0 s')
    """
    left = int(time.total_seconds())
    said: list[tuple[int, str]] = []
    for unit, length in _STEPS:
        count, left = divmod(left, length)
        if count or said:
            said.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in said[:_ROUGHLY] if count) or "0 s"
