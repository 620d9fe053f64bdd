"""The tables, their version, and whose file this is.

Times are seconds since 1970 in UTC: due times, leases and ends by the file's own time
(timeline.py), what people are shown by the wall clock. Bodies are text where they are UTF-8, so
that a person can read them with any SQLite tool. An item belongs to the worker whose token it
bears; an item without a token is free.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import chain

from headway.adapters.sqlite.connection import Connection, Location, connect

APPLICATION = 0x48647779
"""What marks a file as ours: "Hdwy"."""

_TABLES = (
    """
    create table headway_items (
        id integer primary key,
        queue text not null,
        place text not null default 'ready',
        due real not null,
        token text,
        taking integer,
        returns integer not null default 0,
        begins integer not null default 0,
        begun integer not null default 0,
        operation text not null,
        generation text not null,
        failures integer not null,
        not_yet integer not null,
        first_seen real,
        parked_seconds real not null,
        parked_since real,
        requeues integer not null,
        history text,
        body,
        refusals text,
        hops integer not null default 0
    )
    """,
    "create index headway_items_free on headway_items (queue, due) where token is null",
    "create index headway_items_taken on headway_items (token) where token is not null",
    """
    create index headway_items_again on headway_items (operation, queue) where generation <> '0'
    """,
    """
    create index headway_items_parked on headway_items (queue, due)
    where place = 'parked' and token is null
    """,
    "create index headway_items_suspect on headway_items (queue) where returns >= 2",
    # A scrape of metrics reads how many events each queue has. Publishing and settling keep that
    # number, once for many events: a trigger for each would make every event 2 % slower. The
    # trigger for events that no worker has fires only where other programs delete rows.
    """
    create table headway_queues (
        name text primary key, failed text not null, items integer not null default 0
    ) without rowid
    """,
    """
    create trigger headway_item_removed after delete on headway_items when old.token is null begin
        update headway_queues set items = items - 1 where name = old.queue;
    end
    """,
    """
    create table headway_bindings (
        event_type text not null, queue text not null, primary key (event_type, queue)
    ) without rowid
    """,
    """
    create table headway_accepted (
        queue text not null, operation text not null, at real not null,
        primary key (queue, operation)
    ) without rowid
    """,
    """
    create table headway_done (
        id integer primary key,
        key text not null unique,
        operation text not null,
        queue text not null,
        generation text not null,
        ended text not null,
        at real not null,
        letter text,
        failed_queue text not null default '',
        held text
    )
    """,
    # Without failures that wait for a decision, which may be many, and are not forgotten.
    """
    create index headway_done_over on headway_done (at) where ended <> 'failed' and held is null
    """,
    "create index headway_done_held on headway_done (at) where held is not null",
    "create index headway_done_letter on headway_done (letter) where letter is not null",
    "create index headway_done_again on headway_done (operation, queue) where generation <> '0'",
    """
    create table headway_forgotten (
        only integer primary key check (only = 1), done integer not null, purged integer not null
    )
    """,
    "insert into headway_forgotten values (1, 0, 0)",
    """
    create table headway_failed_queues (
        name text primary key, letters integer not null default 0
    ) without rowid
    """,
    """
    create table headway_letters (
        id integer primary key autoincrement,
        queue text not null,
        letter_id text not null,
        operation text not null,
        generation text not null,
        source_queue text not null,
        written real not null,
        body text not null,
        unique (queue, letter_id)
    )
    """,
    # With the row's id, as in every index: the pages of one queue, in order, without sorting.
    "create index headway_letters_queue on headway_letters (queue)",
    "create index headway_letters_operation on headway_letters (operation, source_queue)",
    # Dead letters are few, so triggers count them.
    """
    create trigger headway_letter_comes after insert on headway_letters begin
        update headway_failed_queues set letters = letters + 1 where name = new.queue;
    end
    """,
    """
    create trigger headway_letter_goes after delete on headway_letters begin
        update headway_failed_queues set letters = letters - 1 where name = old.queue;
    end
    """,
    """
    create table headway_documents (
        number integer primary key,
        collection text not null,
        id text not null,
        body text not null,
        unique (collection, id)
    )
    """,
    """
    create table headway_workers (
        token text primary key,
        machine text not null,
        namespace text not null,
        pid integer not null,
        started text not null,
        beat integer not null default 0,
        since real not null
    ) without rowid
    """,
    "create table headway_leases (name text primary key, token text not null, until real not null)",
    """
    create table headway_totals (
        family text not null, name text not null, total real not null, primary key (family, name)
    ) without rowid
    """,
    "create table headway_notes (id integer primary key, at real not null, body text not null)",
    "create index headway_notes_at on headway_notes (at)",
    # A key that holds nothing has no due time, and a marker is all that an idle one has.
    # `held` says how many results a key holds: to count them takes as long as to read them.
    """
    create table headway_sequences (
        family text not null, key text not null, marker integer, state text, due real,
        held integer not null default 0, primary key (family, key)
    ) without rowid
    """,
    """
    create index headway_sequences_due on headway_sequences (family, due, key)
    where due is not null
    """,
    """
    create table headway_held (
        family text not null,
        key text not null,
        position integer not null,
        step integer not null,
        begins integer not null,
        since real not null,
        attempts integer not null,
        payload not null,
        primary key (family, key, position)
    ) without rowid
    """,
    # The file's time is `ahead` of the steady clock of this boot. It was `marked` when the wall
    # clock said `wall`.
    """
    create table headway_time (
        only integer primary key check (only = 1),
        boot text not null,
        ahead real not null,
        wall real not null,
        marked real not null
    )
    """,
    # Where a reboot moved the file's time by more than a day: from when, and to when.
    "create table headway_jumps (began real not null, ended real not null)",
    # Events whose type no queue took when they were published. Triggers count them by type: a
    # scrape of metrics reads that number, and a worker that starts looks there first.
    """
    create table headway_unrouted (
        id integer primary key,
        event_type text not null,
        operation text not null,
        at real not null,
        body
    )
    """,
    "create index headway_unrouted_type on headway_unrouted (event_type)",
    """
    create table headway_unrouted_types (
        event_type text primary key, events integer not null, takers text
    ) without rowid
    """,
    """
    create trigger headway_unrouted_comes after insert on headway_unrouted begin
        insert into headway_unrouted_types (event_type, events) values (new.event_type, 1)
        on conflict (event_type) do update set events = events + 1;
    end
    """,
    """
    create trigger headway_unrouted_goes after delete on headway_unrouted begin
        update headway_unrouted_types set events = events - 1 where event_type = old.event_type;
        delete from headway_unrouted_types where event_type = old.event_type and events <= 0;
    end
    """,
    # Which version of a service each worker runs. `until` is null while the worker is registered:
    # then until when that version counts as alive.
    """
    create table headway_versions (
        token text not null,
        queue text not null,
        version text not null,
        grace real not null,
        until real,
        primary key (queue, version, token)
    ) without rowid
    """,
)

STEPS: tuple[Sequence[str], ...] = (_TABLES,)
"""What makes each version of the tables from the one before: their number is the version.

A process of the version before may still run. So a step only adds: a table, an index, or a column
with a default.
"""


def open_file(location: Location, *, synchronous: str | None = None) -> Connection:
    """Connect to the file, with the tables in it."""
    connection = connect(location, synchronous=synchronous)
    try:
        prepare(connection, location)
        if location.time is not None:
            location.time.join(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(location: Location) -> Connection:
    """Connect to the file as it is, or to an empty stand-in if it has no tables yet.

    Reading makes no tables and upgrades none: workers of an older version may have to restart.
    """
    if _has_tables(location):
        connection = connect(location)
        try:
            version = _version(connection, location)
            if version:
                if location.time is not None:
                    location.time.join(connection)
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
    empty = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, factory=Connection
    )
    _make(empty)
    return empty


def explained(location: Location, error: sqlite3.Error) -> Exception:
    """Say why a file could not be read, if that is because an older version made its tables."""
    if not str(error).startswith("no such"):  # table, or column
        return error
    version = _stored_version(location)
    if version == len(STEPS):
        return error
    return location.refusal(
        f"has schema version {version}, and this version of Headway needs {len(STEPS)}. A worker "
        "of this version upgrades it when it starts; after that no worker of the older version can "
        "start"
    )


def _has_tables(location: Location) -> bool:
    path = location.path.absolute()
    if location.known.opened:
        return True
    if not path.exists():
        return not path.parent.is_dir()  # which opening it explains, as all that is wrong below
    location.refuse_stale_log()
    try:
        return bool(_stored_version(location))
    except sqlite3.Error:
        return True


def _stored_version(location: Location) -> int:
    uri = f"{location.path.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        return _version(connection, location)


def prepare(connection: sqlite3.Connection, location: Location) -> None:
    """Make the tables that are missing; refuse a file that is not ours or not for this version.

    All of it in one transaction: nobody ever sees a part.
    """
    if _version(connection, location) >= len(STEPS):
        return
    connection.execute("begin immediate")
    try:
        found = _version(connection, location)  # another process may have been quicker
        if found < len(STEPS):
            _make(connection, since=found)
            connection.execute(f"pragma application_id = {APPLICATION}")
            connection.execute(f"pragma user_version = {len(STEPS)}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _make(connection: sqlite3.Connection, since: int = 0) -> None:
    for statement in chain.from_iterable(STEPS[since:]):
        connection.execute(statement)


def _version(connection: sqlite3.Connection, location: Location) -> int:
    """Say which version of the tables is there; 0: none."""
    # A file with tables of the user's own is welcome: bodies write to them in the same commit.
    # In this order: another process may make the tables between the two looks, and both in one
    # commit. Whoever sees the version then sees the mark too.
    version = int(connection.execute("pragma user_version").fetchone()[0])
    application = connection.execute("pragma application_id").fetchone()[0]
    if application not in {0, APPLICATION} or (version and application != APPLICATION):
        raise location.refusal(
            f"belongs to another program (application id {application}, version {version}): "
            "name another file"
        )
    if version == len(STEPS):
        location.known.fits = True
    if version > len(STEPS) and not location.known.fits:
        raise location.refusal(
            f"has tables of version {version}, made by a newer Headway, and this one knows "
            f"{len(STEPS)}: upgrade Headway, or name another file"
        )
    return version
