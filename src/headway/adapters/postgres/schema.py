"""The tables, their version, and what a server must be like.

Bodies are jsonb, so that any client can read and index them. Ids are ordered by their bytes in
every database. A record holds JSON as text: it may hold U+0000, which jsonb does not take.
"""

from collections.abc import Sequence
from typing import Any

from headway.adapters.postgres.refusals import PRIMARY, Place

_OLDEST = 12
_LOCK = 7_217_430_911_001
"""Whoever makes tables holds it: two processes would make the same ones at the same moment."""

# Reads what core.document.moment reads of the times that programs write; null for anything else,
# and for what only one of the two would read. No cast in it can fail, and no setting changes it:
# what is cast is a date that exists, in one form, with its zone.
_INSTANT = r"""
create or replace function headway_instant(value text) returns timestamptz
language plpgsql immutable strict parallel safe as $function$
declare
    day text := pg_catalog.substr(value, 6, 5);
    year integer;
begin
    if value !~ (
        '^[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])'
        '(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.][0-9]{1,6})?)?'
        '(?:Z|[+-](?:0[0-9]|1[0-4])(?::?[0-5][0-9])?)?)?$'
    ) or day in ('02-30', '02-31', '04-31', '06-31', '09-31', '11-31') then
        return null;
    end if;
    year := pg_catalog.substr(value, 1, 4)::integer;
    if year not between 2 and 9998
        or day = '02-29' and (year % 4 <> 0 or year % 100 = 0 and year % 400 <> 0) then
        return null;
    end if;
    if pg_catalog.substr(value, 14) ~ '[Z+-]' then
        return value::timestamptz;
    end if;
    return (value || 'Z')::timestamptz;
end
$function$
"""

_TABLES = (
    "create table headway_version (one integer primary key check (one = 1), version integer)",
    "insert into headway_version values (1, 1)",
    """
    create table headway_documents (
        collection text collate "C" not null,
        id text collate "C" not null,
        body jsonb not null check (jsonb_typeof(body) = 'object'),
        primary key (collection, id)
    )
    """,
    """
    create table headway_done (
        id bigint generated always as identity primary key,
        key text collate "C" not null unique,
        operation text collate "C" not null,
        queue text collate "C" not null,
        generation text collate "C" not null,
        ended text not null,
        at timestamptz not null,
        letter text,
        failed_queue text not null,
        outgoing text,
        unwritten text
    )
    """,
    "create index headway_done_at on headway_done (at) where ended <> 'failed'",
    """
    create index headway_done_unsent on headway_done (at, id)
    where outgoing is not null or unwritten is not null
    """,
    "create index headway_done_letter on headway_done (letter) where letter is not null",
    # Operations may have names of any length, which only such an index takes.
    """
    create index headway_done_again on headway_done using hash (operation)
    where generation <> '0'
    """,
    """
    create table headway_forgotten (
        one integer primary key check (one = 1), done bigint not null, purged bigint not null
    )
    """,
    "insert into headway_forgotten values (1, 0, 0)",
    """
    create table headway_leases (
        name text collate "C" primary key,
        token text not null,
        until timestamptz not null,
        lasts interval not null,
        renewals bigint not null default 0
    )
    """,
    """
    create table headway_totals (
        family text collate "C" not null,
        name text collate "C" not null,
        value double precision not null,
        primary key (family, name)
    )
    """,
    """
    create table headway_notes (
        id bigint generated always as identity primary key,
        at timestamptz not null,
        entry text not null
    )
    """,
    "create index headway_notes_at on headway_notes (at, id)",
    _INSTANT,
)

# A transaction that runs callbacks inserts a row. This trigger refuses its COMMIT unless our last
# statement has allowed it. A callback may also say SET CONSTRAINTS ALL IMMEDIATE, which fires the
# trigger as well: the first time within one message of the client it queues itself again. At COMMIT
# it then fires a second time within the same message, and refuses.
_GUARD_FUNCTION = """
create function headway_guard() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp as $function$
declare
    guard text := tg_relid::regclass::text;
    message text := statement_timestamp()::text;
begin
    if current_setting('headway.commit', true) = new.xid::text then
        execute 'delete from ' || guard || ' where xid = $1' using new.xid;
        return null;
    end if;
    if current_setting('headway.message', true) is not distinct from message then
        raise exception 'the callback tried to end the transaction that it shares with its event'
            using errcode = 'invalid_transaction_termination', hint = 'Leave COMMIT to Headway.';
    end if;
    perform set_config('headway.message', message, true);
    execute 'delete from ' || guard || ' where xid = $1' using new.xid;
    execute format('set constraints %I.headway_guard deferred', tg_table_schema);
    execute 'insert into ' || guard || ' values ($1)' using new.xid;
    return null;
end
$function$
"""
_GUARD = (
    """
    create unlogged table headway_guard (
        xid bigint primary key default txid_current()
    )
    """,
    _GUARD_FUNCTION,
    """
    create constraint trigger headway_guard after insert on headway_guard
    deferrable initially deferred for each row execute function headway_guard()
    """,
)

# The server's time for all that we compare with it; the tests set it by replacing this function.
_NOW = """
create function headway_now() returns timestamptz language sql volatile parallel safe
as 'select pg_catalog.clock_timestamp()'
"""

STEPS: tuple[Sequence[str], ...] = ((*_TABLES, *_GUARD, _NOW),)
"""What makes each version of the tables from the one before: their number is the version.

A process of the version before may still run. So a step only adds: a table, an index, or a column
with a default.
"""

_FACTS = """
select current_setting('server_version_num')::integer / 10000, current_setting('server_version'),
       pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
       exists (
           select from pg_class where relname = 'headway_version' and pg_table_is_visible(oid)
       )
"""
# Not by to_regclass, which would remember from before the lock that there is no such table.


async def make_sure(connection: Any, place: Place) -> None:
    """Make the tables that are missing; refuse a server on which that would not do."""
    await connection.execute("begin")
    try:
        if await _version(connection, place) < len(STEPS):
            await connection.execute(f"select pg_advisory_xact_lock({_LOCK})")
            version = await _version(connection, place)  # another process may have been quicker
            for step in STEPS[version:]:
                await connection.execute(";".join(step))
            await connection.execute(f"update headway_version set version = {len(STEPS)}")  # noqa: S608 (a number of our own)
        await connection.execute("commit")
    except BaseException:
        if not connection.is_closed():
            await connection.execute("rollback")
        raise


async def _version(connection: Any, place: Place) -> int:
    """Say which version of the tables is there; 0: none."""
    major, named, standby, read_only, made = await connection.fetchrow(_FACTS)
    if major < _OLDEST:
        raise place.refusal(f"runs PostgreSQL {named}", f"use version {_OLDEST} or newer")
    if standby:
        raise place.refusal("is a standby, where nothing can be written", PRIMARY)
    if read_only:
        raise place.refusal(
            "takes no writes: its transactions are read-only",
            "set default_transaction_read_only to off for this user and database",
        )
    version: int = await connection.fetchval("select version from headway_version") if made else 0
    if version > len(STEPS):
        raise place.refusal(
            f"has tables of version {version}, made by a newer Headway, and this one knows "
            f"{len(STEPS)}",
            "upgrade Headway, or name another database",
        )
    return version
