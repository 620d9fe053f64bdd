"""When a key has to be looked at, and how it stands: what it waits for, and until when."""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from headway.core.sequence_settings import OnGap, SequenceSettings
from headway.core.sequence_state import Flight, Gap, KeyState, Why


def due(state: KeyState, settings: SequenceSettings, now: datetime) -> datetime | None:
    """Say when a key has to be looked at next. None: never, by itself."""
    if not state.held:
        return None
    if state.flight is not None and now < state.flight.until:
        return state.flight.until
    if state.is_ready(state.head()):
        return now if state.paused_until is None else max(now, state.paused_until)
    if state.parked:
        return None
    since = state.gap_since or now
    for age in settings.looks:
        if since + age > now:
            return since + age
    later, last = _beyond(settings, since, now), since + settings.gap_at_most
    return min(later, last) if last > now else later


def _beyond(settings: SequenceSettings, since: datetime, now: datetime) -> datetime:
    """Say when to look at a gap whose time is over.

    It is waited for only because we are behind the source ourselves. Counted from the end of its
    time, not from now: else each result that comes would put the look off.
    """
    at, wait = since + settings.give_up_after, settings.first_look_beyond
    longest = settings.schedule[-1]
    while at + wait <= now and wait < longest:
        at, wait = at + wait, wait * 2
    wait = min(wait, longest)
    return at + ((now - at) // wait + 1) * wait


def look_in(state: KeyState, settings: SequenceSettings, now: datetime) -> timedelta | None:
    """Say in how long a key has to be looked at."""
    at = due(state, settings, now)
    return None if at is None else at - now


def attempts_of(state: KeyState, settings: SequenceSettings, now: datetime) -> int:
    """Count the looks of the schedule that are over for the present gap."""
    if state.gap_since is None:
        return 0
    return sum(state.gap_since + age <= now for age in settings.looks)


class Mode(StrEnum):
    """How a key stands."""

    IDLE = "idle"
    IN_FLIGHT = "in flight"
    """Somebody is at a position."""
    READY = "ready"
    """The next result is held, and nobody is at it: whoever looks takes it over."""
    PAUSED = "paused"
    """The next result failed, and is tried again later."""
    WAITING = "waiting"
    """Results are held behind a gap."""
    PARKED = "parked"
    """The gap was given up, and a person decides."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a key stands, for a person."""

    mode: Mode
    marker: int | None
    missing: Gap | None
    """The first gap."""
    held: tuple[int, ...]
    head: int | None
    """Which of them is handed out next."""
    flight: Flight | None
    since: datetime | None
    """Since when it waits for the gap, or since when the oldest result is held."""
    next_look: datetime | None
    gives_up: datetime | None
    """When the wait for the gap ends, if nothing comes and the source is not behind."""


def standing(state: KeyState, settings: SequenceSettings, now: datetime) -> Standing:
    """Say what a key waits for, since when, and what happens when."""
    mode, gap = _mode(state, now), None
    if mode in {Mode.WAITING, Mode.PARKED}:
        head = state.head()
        count = state.missing_before(head.position, head.step, head.begins)
        fill = settings.on_gap is not OnGap.SKIP
        first, last = head.position - count * head.step, head.position - head.step
        gap = Gap(first, last, head.step, Why.TIMEOUT, fill)
    since = state.gap_since or min((held.since for held in state.held), default=None)
    waits = mode is Mode.WAITING and since is not None
    wait = settings.gap_at_most if state.was_started(now) else settings.give_up_after
    return Standing(
        mode=mode,
        marker=state.marker,
        missing=gap,
        held=tuple(held.position for held in state.held),
        head=state.head().position if state.held else None,
        flight=state.flight,
        since=since,
        next_look=due(state, settings, now),
        gives_up=since + wait if waits and since is not None else None,
    )


def _mode(state: KeyState, now: datetime) -> Mode:
    if state.is_live(now):
        return Mode.IN_FLIGHT
    if not state.held:
        return Mode.IDLE
    if state.is_ready(state.head()):
        paused = state.paused_until is not None and now < state.paused_until
        return Mode.PAUSED if paused else Mode.READY
    return Mode.PARKED if state.parked else Mode.WAITING
