"""What single fields of a header mean: who, when, which message, about what."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from email.utils import getaddresses, parsedate_tz

from headway.systems.consensus.mail.headers import Head, one_line, readable

EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)
"""There was no mail before; what says so has a clock that was never set."""
_NEVER = datetime(2200, 1, 1, tzinfo=UTC)
_AGREED = timedelta(days=3)
_WIDEST_ZONE = 15 * 3600
_LONGEST_ID = 998
_MOST_IDS = 100
_MOST_ADDRESSES = 100
_LONGEST_ADDRESSES = 16_000
_ID = re.compile(r"<([^<>]{1,2000})>")
_SIMPLE = re.compile(r'(?:"?([^"<>,;:()\\@]{0,200}?)"?\s?)<([^<>\s@,]{1,200}@[^<>\s@,]{1,200})>')
_BARE = re.compile(r"[^<>\s@,;:()\"\\]{1,200}@[^<>\s@,;:()\"\\]{1,200}")
_HIDDEN_AT = re.compile(r"([^\s<>()@]{1,200}) at ([\w-]{1,60}(?:\.[\w-]{1,60}){1,6})")
_REPLY = re.compile(
    r"\s*(?:re|aw|antw|antwort|sv|vs|ref|odp|rif|r|fw|fwd|wg|tr|rv|enc|回复|答复|转发)"
    r"(?:\[\d{1,4}\]|\(\d{1,4}\)|\^\d{1,4})?\s?[:\uff1a]",
    re.IGNORECASE,
)
_TAG = re.compile(r"\s*\[[^\]\d]{1,60}\]")


@dataclass(frozen=True, slots=True)
class Address:
    """Somebody who writes or is written to."""

    name: str
    email: str


def read_date(head: Head, postmark: bytes, latest: datetime) -> datetime | None:
    """Give when a message was sent, in UTC, or else when it was received.

    A date before there was mail, or after `latest`, is a wrong clock and counts for nothing. But if
    the sender and who received it agree on such a date, the wrong clock is not theirs.
    """
    moments: list[datetime] = []
    for text in _dates(head, postmark):
        moment = parse_date(text)
        if moment is None or not EARLIEST <= moment < _NEVER:
            continue
        if moment <= latest:
            return moment
        moments.append(moment)
    if len(moments) > 1 and abs(moments[0] - moments[1]) < _AGREED:
        return moments[0]
    return None


def _dates(head: Head, postmark: bytes) -> Iterator[str]:
    yield from map(one_line, head.raw("date")[:3])
    yield from (one_line(value).rpartition(";")[2] for value in head.raw("received")[:5])
    yield from re.findall(
        r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b.{1,80}", one_line(postmark[:_LONGEST_ID])
    )


def parse_date(text: str) -> datetime | None:
    """Read a date in any of the forms that mail has; None if it is none.

    >>> parse_date("Mon, 5 Jan 2026 10:00:00 +0100 (CET)").isoformat()
    '2026-01-05T09:00:00+00:00'
    """
    try:
        found = parsedate_tz(text[:100])
    except Exception:  # noqa: BLE001 (some broken dates break the parser, each in its own way)
        found = None
    try:
        if found is None:
            moment = datetime.fromisoformat(text.strip())
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        year, month, day, hour, minute, second = found[:6]
        shift = found[9] or 0
        # A zone that nobody lives in says nothing, so the rest is taken for UTC.
        zone = timezone(timedelta(seconds=shift if abs(shift) < _WIDEST_ZONE else 0))
        local = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone)
        return local.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def read_ids(values: Iterable[bytes]) -> list[str]:
    r"""Give the message ids in some fields, without brackets: the first, and the last hundred.

    >>> read_ids([b"<a@x>  <b\n @y>", b"no-brackets@z"])
    ['a@x', 'b@y', 'no-brackets@z']
    """
    found: list[str] = []
    for value in values:
        text = one_line(value)
        ids = ["".join(each.split())[:_LONGEST_ID] for each in _ID.findall(text)]
        if not ids and "<" not in text and " " not in text:
            ids = [text[:_LONGEST_ID]]
        found += filter(None, ids)
    unique = list(dict.fromkeys(found))
    return unique if len(unique) <= _MOST_IDS else [unique[0], *unique[-_MOST_IDS:]]


def read_addresses(values: Iterable[bytes]) -> list[Address]:
    """Give the people in some fields; at most a hundred, for more are a list of its own.

    >>> read_addresses([b"ann at example.org (Ann Bee)", b"=?utf-8?q?J=C3=B6?= <j@x.org>"])
    [Address(name='Ann Bee', email='ann@example.org'), Address(name='Jö', email='j@x.org')]
    """
    found: list[Address] = []
    for value in values:
        text = one_line(value[:_LONGEST_ADDRESSES])
        if text:
            found += _simple(text) or _several(_HIDDEN_AT.sub(r"\1@\2", text))
    return list(dict.fromkeys(found))[:_MOST_ADDRESSES]


def _simple(text: str) -> list[Address]:
    """Read addresses in which nothing is strange, as nearly all are; the rest takes its time."""
    people: list[Address] = []
    for piece in text.split(","):
        trimmed = piece.strip()
        named = _SIMPLE.fullmatch(trimmed)
        if named is not None:
            people.append(Address(_name(named[1]), named[2]))
        elif _BARE.fullmatch(trimmed):
            people.append(Address("", trimmed))
        else:
            return []
    return people


def _several(text: str) -> list[Address]:
    try:
        pairs = getaddresses([text])
    except (RecursionError, ValueError, IndexError):  # comments within comments, quotes without end
        pairs = []
    people = [Address(_name(name), email) for name, email in pairs if "@" in email]
    # A field that cannot be taken apart may still hold addresses; or a name, at least.
    people = people or [Address("", email) for email in _BARE.findall(text)]
    return people or [Address(_name(text)[:200], "")]


def _name(text: str) -> str:
    text = text.strip(" \"'")
    return readable(text.encode("utf-8", "replace")) if "=?" in text else text


def base_subject(subject: str) -> tuple[str, bool]:
    """Give a subject without `Re:` and `[list]`, in small letters, and whether it is a reply.

    >>> base_subject("Re: [dev] AW: Release  plan")
    ('release plan', True)
    """
    at, is_reply = _base(subject)
    return " ".join(subject[at:].casefold().split()), is_reply


def without_reply(subject: str) -> str:
    """Give a subject as it may have been before anybody answered."""
    at, is_reply = _base(subject)
    return subject[at:].strip() if is_reply else subject


def _base(subject: str) -> tuple[int, bool]:
    is_reply, at = False, 0
    while True:
        if (reply := _REPLY.match(subject, at)) is not None:
            is_reply, at = True, reply.end()
        elif (tag := _TAG.match(subject, at)) is not None and tag.end() < len(subject):
            at = tag.end()
        else:
            return at, is_reply
