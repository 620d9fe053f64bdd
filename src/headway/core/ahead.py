"""Times that lie ahead, as people type them."""

import re
from datetime import UTC, datetime, timedelta

from headway.core.errors import ConfigurationError
from headway.core.showing import shown

_FARTHEST = timedelta(days=366)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_PART = r"([0-9]{1,6})([smhd])"
_DURATION = re.compile(f"(?:{_PART})+")
_DAY = timedelta(days=1)


def read_ahead(name: str, text: str, now: datetime) -> datetime:
    """Read when something is to happen; `name` is what was typed before it.

    >>> now = datetime(2030, 1, 30, 22, 0, tzinfo=UTC)
    >>> read_ahead("--at", "1h30m", now).isoformat()
    '2030-01-30T23:30:00+00:00'
    >>> read_ahead("--at", "2030-01-31T06:00+02:00", now).isoformat()
    '2030-01-31T04:00:00+00:00'
    """
    at = _read(text.strip(), now)
    cure = (
        f"use a time such as {now + _DAY:%Y-%m-%d}T06:00 (UTC), a duration such as 90s, 30m, 2h or "
        "1d, or now"
    )
    if at is None:
        raise ConfigurationError(f"{name} {shown(text)!r} is not accepted: {cure}")
    if at < now:
        raise ConfigurationError(
            f"{name} {shown(text)!r} is not accepted: that was before now, {now:%Y-%m-%d %H:%M} "
            f"UTC; {cure}"
        )
    if at > now + _FARTHEST:
        raise ConfigurationError(
            f"{name} {shown(text)!r} is not accepted: it is more than a year ahead; {cure}"
        )
    return at


def _read(text: str, now: datetime) -> datetime | None:
    if text == "now":
        return now
    try:
        if _DURATION.fullmatch(text):
            parts = re.findall(_PART, text)
            return now + sum((_part(*part) for part in parts), timedelta())
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _part(number: str, unit: str) -> timedelta:
    return timedelta(**{_UNITS[unit]: int(number)})
