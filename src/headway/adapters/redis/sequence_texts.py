"""Keys of sequences as Redis keeps them: texts that a person can read with redis-cli."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headway.adapters.redis.unreadable import is_unreadable
from headway.core.sequence_answers import (
    Completed,
    Look,
    Looked,
    Offer,
    Offered,
    Outcome,
    Turn,
)
from headway.core.sequence_settings import OnGap, SequenceSettings
from headway.core.sequence_state import Flight, Gap, Held, Jump, KeyState, Missed, Why

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)
_KEPT_LONGER = 24
"""The backlog expires so many times later than its results should have been given out."""

Answer = Any
"""What the script gives: bytes, a number, or a list of them."""


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def instant(at: float) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def script_for(settings: SequenceSettings, forget_after: timedelta) -> str:
    """Give the script with the settings in it: they need not travel with each call.

    Only what nearly every call needs is made in every call.
    """
    backlog = settings.hold_at_most * _KEPT_LONGER
    always = {
        "LEASE": _whole(settings.lease),
        "STATE_TTL": _milliseconds(max(backlog, forget_after)),
    }
    seldom = {
        "SCHEDULE": _list(settings.schedule),
        "LOOKS": _list(settings.looks),
        "LAST_WAIT": _whole(settings.schedule[-1]),
        "FIRST_LOOK_BEYOND": _whole(settings.first_look_beyond),
        "GAP_AT_MOST": _whole(settings.gap_at_most),
        "HOLD_AT_MOST": _whole(settings.hold_at_most),
        "REMEMBER": _whole(settings.remember),
        "BREAKER": str(settings.breaker),
        "BREAKER_AT_MOST": str(settings.breaker_at_most),
        "ON_GAP": f"'{settings.on_gap}'",
        "ON_LATE": f"'{settings.on_late}'",
        "BACKLOG_TTL": _milliseconds(backlog),
    }
    text = Path(__file__).with_name("sequence.lua").read_text()
    return _constants(always) + text.replace("  -- SETTINGS\n", _constants(seldom), 1)


def offer_text(offer: Offer) -> str:
    applied = "" if offer.applied is None else offer.applied
    caught_up = "" if offer.caught_up is None else micros(offer.caught_up)
    return f"{offer.position}|{offer.token}|{offer.step}|{offer.begins}|{applied}|{caught_up}"


def look_text(look: Look) -> str:
    return f"{look.token}|{'' if look.caught_up is None else micros(look.caught_up)}"


def offered(offer: Offer, answer: Answer, *, fill: bool) -> Offered:
    """Read the answer to an offer."""
    if answer == b"P":
        work = Turn(offer.key, offer.position, offer.payload, offer.token)
        return Offered(Outcome.PROCESS, work)
    if answer == b"D":
        return _DUPLICATE
    if is_unreadable(offer.key, answer):
        return Offered(Outcome.UNREADABLE)
    code, held, flag, why, stale, wait, *handed = answer
    if code == b"P":
        work = Turn(offer.key, offer.position, offer.payload, offer.token, late=bool(flag))
        return Offered(Outcome.PROCESS, work, held, look_in=_wait(wait), stale=stale)
    outcome = Outcome.HELD if code == b"H" else Outcome.DUPLICATE
    given_up = _why(why)
    work_now = _work(offer.key, offer.token, handed, fill=fill)
    return Offered(outcome, work_now, held, bool(flag), given_up, _wait(wait), stale)


def completed(key: str, token: str, answer: Answer, *, fill: bool) -> Completed:
    """Read the answer to a completion."""
    if answer == b"C":
        return _COMPLETED
    if is_unreadable(key, answer):
        return Completed(accepted=False)
    accepted, released, held, cleared, stale, wait, *handed = answer
    return Completed(
        accepted=bool(accepted),
        released=bool(released),
        work=_work(key, token, handed, fill=fill),
        held=held,
        cleared=bool(cleared),
        stale=stale,
        look_in=_wait(wait),
    )


def looked(key: str, token: str, answer: Answer, *, fill: bool) -> Looked:
    """Read the answer to a look."""
    if is_unreadable(key, answer):
        return Looked()
    held, why, attempt, wait, *handed = answer
    work = _work(key, token, handed, fill=fill)
    return Looked(work, held, _why(why), attempt, _wait(wait))


def state_of(text: bytes | None, members: Sequence[tuple[bytes, float]]) -> KeyState:
    """Read a key as it is stored."""
    if text is None:
        return KeyState()
    if b"|" not in text:
        return KeyState(int(text))
    parts = text.decode().split("|")
    marker, position, token, until, gap, to, why, pause, parked, _holds, missed = parts
    return KeyState(
        marker=int(marker) if marker else None,
        flight=Flight(int(position), token, instant(int(until))) if position else None,
        held=tuple(_held(member, score) for member, score in members),
        gap_since=_instant(gap),
        jump=Jump(int(to), Why(why)) if to else None,
        paused_until=_instant(pause),
        parked=bool(parked),
        missed=tuple(_missed(each) for each in missed.split(";") if each),
    )


def payload_of(member: bytes) -> bytes:
    return _parts(member)[-1]


def fills(settings: SequenceSettings) -> bool:
    return settings.on_gap is not OnGap.SKIP


_DUPLICATE = Offered(Outcome.DUPLICATE)
_COMPLETED = Completed(accepted=True)


def _work(key: str, token: str, handed: list[list[Any]], *, fill: bool) -> Turn | None:
    if not handed:
        return None
    position, attempt, late, payload, *gap = handed[0]
    given_up = None
    if gap:
        first, last, step, why = gap
        given_up = Gap(int(first), int(last), int(step), Why(why.decode()), fill)
    position, late = int(position), bool(late)
    return Turn(key, position, payload, token, attempt, held=True, late=late, gap=given_up)


def _why(why: bytes) -> Why | None:
    return Why(why.decode()) if why else None


def _wait(wait: bytes) -> timedelta | None:
    return timedelta(microseconds=int(wait)) if wait else None


def _instant(text: str) -> datetime | None:
    return instant(int(text)) if text else None


def _held(member: bytes, position: float) -> Held:
    step, begins, since, attempts, _payload = _parts(member)
    return Held(int(position), int(step), int(begins), instant(int(since)), int(attempts))


def _parts(member: bytes) -> list[bytes]:
    """Take a member apart, without its position."""
    return member.split(b" ", 5)[1:]


def _missed(text: str) -> Missed:
    first, last, step, until = text.split(",")
    return Missed(int(first), int(last), int(step), instant(int(until)))


def _constants(values: dict[str, str]) -> str:
    return "".join(f"local {name} = {value}\n" for name, value in values.items())


def _milliseconds(wait: timedelta) -> str:
    return f"'{max(wait // _MILLISECOND, 1)}'"  # a number would be written out for every command


def _whole(wait: timedelta) -> str:
    return str(wait // _MICROSECOND)


def _list(waits: Sequence[timedelta]) -> str:
    return "{" + ", ".join(_whole(wait) for wait in waits) + "}"
