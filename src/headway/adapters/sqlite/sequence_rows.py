"""Keys of sequences as rows. A key that holds nothing has no due time."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from headway.adapters.sqlite.rows import instant, seconds, stored
from headway.adapters.sqlite.statements import as_json
from headway.core.sequence_settings import SequenceSettings
from headway.core.sequence_state import Held, KeyState, changes
from headway.core.sequence_waiting import due
from headway.ports.sequences import UnreadableKeyError

_NEVER = datetime.max.replace(tzinfo=UTC)
"""When a parked key is due."""
_UNKNOWN = KeyState()

_KEY = "select marker, state, due, held from headway_sequences where family = ? and key = ?"
_OF_KEY = """
select position, step, begins, since, attempts from headway_held
where family = :family and key = :key
"""
_HELD = f"{_OF_KEY} order by position"
_SOME_HELD = f"""
{_OF_KEY} and position <= :up_to
union {_OF_KEY} and position in (select value from json_each(:named))
union select * from ({_OF_KEY} and position > :up_to order by position limit 1)
union select * from ({_OF_KEY} order by position desc limit 1)
order by position
"""  # noqa: S608 (parts of our own; values are bound)
FEW = 32
"""So many held results are read as quickly as some of them."""
_PAYLOAD = "select payload from headway_held where family = ? and key = ? and position = ?"
_WRITE = """
insert into headway_sequences (family, key, marker, state, due, held) values (?, ?, ?, ?, ?, ?)
on conflict (family, key) do update
set marker = excluded.marker, state = excluded.state, due = excluded.due, held = excluded.held
"""
_HOLD = """
insert into headway_held (family, key, position, step, begins, since, attempts, payload)
values (?, ?, ?, ?, ?, ?, ?, ?)
on conflict (family, key, position) do update set attempts = excluded.attempts
"""
_LET_GO = "delete from headway_held where family = ? and key = ? and position = ?"

_STATE = msgspec.json.Decoder(KeyState)
_encoded = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Needed:
    """Which held results a decision needs, besides the first and the last: see `KeyState`."""

    position: int | None = None
    up_to: int | None = None
    """All up to this position, and the next one."""


def load(
    connection: sqlite3.Connection, family: str, key: str, needed: Needed | None = None
) -> KeyState:
    """Read a key, without what is in its results; of many held results only those needed."""
    try:
        return _loaded(connection, family, key, needed)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
        raise UnreadableKeyError(key, str(error)) from error


def _loaded(
    connection: sqlite3.Connection, family: str, key: str, needed: Needed | None
) -> KeyState:
    row = connection.execute(_KEY, (family, key)).fetchone()
    if row is None:
        return _UNKNOWN
    marker, text, at, count = row
    if marker is not None and type(marker) is not int:
        raise ValueError(f"its marker is {marker!r}")
    if text is None and at is None:
        return KeyState(marker)
    state = replace(_STATE.decode(text) if text is not None else _UNKNOWN, marker=marker)
    if at is None:
        return state
    values: dict[str, object] = {"family": family, "key": key}
    if needed is None or count <= FEW:
        rows = connection.execute(_HELD, values).fetchall()
        return replace(state, held=tuple(_held(*row) for row in rows))
    up_to = max(-1 if marker is None else marker, -1 if needed.up_to is None else needed.up_to)
    named = as_json([needed.position, *state.named])
    values |= {"up_to": up_to, "named": named}
    rows = connection.execute(_SOME_HELD, values).fetchall()
    # Somebody may have removed rows by hand: then there are as many as were found.
    more = max(count - len(rows), 0) if rows else 0
    return replace(state, held=tuple(_held(*row) for row in rows), more=more)


def _held(position: int, step: int, begins: int, since: float, attempts: int) -> Held:
    numbers = (position, step, begins, attempts)
    if step == 0 or not all(type(number) is int for number in numbers):
        raise ValueError(f"a held result has these numbers: {numbers}")
    return Held(position, step, begins, instant(since), attempts)


def save(
    connection: sqlite3.Connection,
    family: str,
    key: str,
    *,
    before: KeyState,
    after: KeyState,
    payload: bytes,
    settings: SequenceSettings,
    now: datetime,
) -> None:
    """Write what became of a key; `payload` is in the result that is new."""
    written, removed = changes(before, after)
    for position in removed:
        connection.execute(_LET_GO, (family, key, position))
    for h in written:
        row = (h.position, h.step, h.begins, seconds(h.since), h.attempts, stored(payload))
        connection.execute(_HOLD, (family, key, *row))
    at = (due(after, settings, now) or _NEVER) if after.held else None
    rest = replace(after, marker=None, held=(), more=0)
    text = None if rest == _UNKNOWN else _encoded(rest).decode()
    when = None if at is None else seconds(at)
    connection.execute(_WRITE, (family, key, after.marker, text, when, after.count))


def payload_of(connection: sqlite3.Connection, family: str, key: str, position: int) -> bytes:
    """Read what is in a held result."""
    (payload,) = connection.execute(_PAYLOAD, (family, key, position)).fetchone()
    return as_bytes(payload)


def as_bytes(payload: str | bytes) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload


def forget(connection: sqlite3.Connection, family: str, key: str) -> int:
    """Remove a key with all that it holds."""
    where = "where family = ? and key = ?"
    connection.execute(f"delete from headway_sequences {where}", (family, key))  # noqa: S608 (ours)
    return connection.execute(f"delete from headway_held {where}", (family, key)).rowcount  # noqa: S608


_DUE = """
select key from headway_sequences where family = ? and due is not null and due <= ?
order by due, key limit ?
"""
_KEEP = "update headway_sequences set due = ? where family = ? and key = ?"


def take_due(
    connection: sqlite3.Connection, family: str, limit: int, now: datetime, until: datetime
) -> Sequence[str]:
    """Name keys that are due, and keep them from others for a while."""
    rows = connection.execute(_DUE, (family, seconds(now), limit)).fetchall()
    for (key,) in rows:
        connection.execute(_KEEP, (seconds(until), family, key))
    return [key for (key,) in rows]
