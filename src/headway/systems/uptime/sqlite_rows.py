"""Tables of the store, and monitors as rows of them."""

import sqlite3
from collections.abc import Set as AbstractSet

import msgspec

from headway.systems.uptime.monitors import Detector, Monitor, Subscription

SCHEMA = (
    """
create table if not exists uptime_monitors (
    subscription_id text primary key,
    subscription text not null,
    detector text,
    last_update_ms integer,
    applied integer not null default 0,
    passed integer not null default 0
) without rowid
""",
    # The record of checks. A miss that was made up has no guid: nobody sent it.
    """
create table if not exists uptime_checks (
    id integer primary key,
    subscription_id text not null,
    scheduled_ms integer not null,
    status text not null,
    guid text not null,
    retracted integer not null default 0
)
""",
    """
create index if not exists uptime_misses on uptime_checks (subscription_id, scheduled_ms)
    where guid = ''
""",
    """
create table if not exists uptime_incidents (
    id integer primary key,
    subscription_id text not null,
    what text not null,
    scheduled_ms integer not null
)
""",
    """
create table if not exists uptime_rejected (
    id integer primary key, raw blob not null, reason text not null, came_at text
)
""",
    "create table if not exists uptime_counts (name text primary key, value real) without rowid",
)
SAVE = """
insert into uptime_monitors (subscription_id, subscription, detector) values (?, ?, ?)
on conflict do update set subscription = excluded.subscription, detector = excluded.detector
"""
DELETE = "delete from uptime_monitors where subscription_id = ?"
SET_SUBSCRIPTION = "update uptime_monitors set subscription = ? where subscription_id = ?"
RECORD = """
insert into uptime_checks (subscription_id, scheduled_ms, status, guid) values (?, ?, ?, ?)
"""
MISSED = """
select 1 from uptime_checks
where subscription_id = ? and scheduled_ms = ? and guid = '' and not retracted
"""
RETRACT = """
update uptime_checks set retracted = 1 where subscription_id = ? and scheduled_ms = ? and guid = ''
"""
TELL = "insert into uptime_incidents (subscription_id, what, scheduled_ms) values (?, ?, ?)"
REJECT = "insert into uptime_rejected (raw, reason, came_at) values (?, ?, ?)"
REJECTED = "select raw, reason, came_at from uptime_rejected order by id desc limit ?"
CHECKS = """
select subscription_id, scheduled_ms, status, guid, retracted from uptime_checks
where subscription_id = ? order by id
"""
TOTALS = """
select
    (select count(*) from uptime_monitors),
    (select coalesce(sum(applied), 0) from uptime_monitors),
    (select count(*) from uptime_checks where guid <> ''),
    (select count(*) from uptime_checks where guid = '' and not retracted),
    (select count(*) from uptime_checks where guid = '' and retracted),
    (select count(*) from uptime_incidents),
    (select count(*) from uptime_rejected)
"""
COUNT = """
insert into uptime_counts (name, value) values (?, ?)
on conflict do update set value = value + excluded.value
"""
COUNTS = "select name, value from uptime_counts"

# The condition is checked by the transaction already; a row that moved back would be worse.
_WRITE = """
update uptime_monitors set detector = ?, last_update_ms = ?, applied = ?, passed = ?
where subscription_id = ? and (last_update_ms is null or last_update_ms <= ?)
"""
_LOAD = """
select subscription_id, subscription, detector, last_update_ms, applied, passed
from uptime_monitors where subscription_id in ({})
"""
_AT_ONCE = 500

_SUBSCRIPTION = msgspec.json.Decoder(Subscription)
_DETECTOR = msgspec.json.Decoder(Detector)


def packed(thing: Subscription | Detector | None) -> str | None:
    return None if thing is None else msgspec.json.encode(thing).decode()


def monitors(connection: sqlite3.Connection, wanted: AbstractSet[str]) -> dict[str, Monitor]:
    """Read monitors; of an unknown one nothing."""
    found: dict[str, Monitor] = {}
    keys = sorted(wanted)
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        statement = _LOAD.format(",".join("?" * len(some)))
        for key, subscription, detector, last, applied, passed in connection.execute(
            statement, some
        ):
            found[key] = Monitor(
                _SUBSCRIPTION.decode(subscription),
                None if detector is None else _DETECTOR.decode(detector),
                last,
                applied,
                bool(passed),
            )
    return found


def write(connection: sqlite3.Connection, before: Monitor, after: Monitor) -> None:
    """Write what has changed of a monitor."""
    if after == before:
        return
    last = after.last_update_ms
    values = (packed(after.detector), last, after.applied, after.passed, after.key, last)
    connection.execute(_WRITE, values)
