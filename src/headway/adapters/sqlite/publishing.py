"""Messages on their way into queues, inside a write transaction."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from headway.adapters.sqlite.rows import ITEM_COLUMNS, item_row
from headway.adapters.sqlite.savepoints import hold, release, undo
from headway.adapters.sqlite.statements import as_json, insert
from headway.adapters.sqlite.timeline import Moment
from headway.core.errors import ConfigurationError
from headway.core.event import is_first_run
from headway.ports.bus import Message, Queue

_BINDINGS = """
select (select json_group_array(json_array(event_type, queue)) from headway_bindings),
       (select json_group_array(name) from headway_queues)
"""
_PAIRS = msgspec.json.Decoder(list[tuple[str, str]])
_NAMES = msgspec.json.Decoder(list[str])

_KEEP_COUNT = "update headway_queues set items = items + ? where name = ?"
_COUNTS = """
select name, items, (
    select count(*) from headway_items indexed by headway_items_free
    where queue = name and token is null
)
from headway_queues
"""
_TAKEN = """
select queue, count(*) from headway_items indexed by headway_items_taken
where token is not null group by queue
"""
_ITEMS = f"into headway_items ({ITEM_COLUMNS})"
_ACCEPTED = "or ignore into headway_accepted (queue, operation, at)"
_KNOWN = """
select json_group_array(json_array(queue, operation)) from headway_accepted
where (queue, operation) in (
    select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(?)
)
"""


def declare(connection: sqlite3.Connection, queues: Sequence[Queue]) -> None:
    """Say which queues there are and what they take; what others declared stays."""
    for queue in queues:
        connection.execute(
            "insert into headway_queues (name, failed) values (?, ?) "
            "on conflict (name) do update set failed = excluded.failed",
            (queue.name, queue.failed),
        )
        connection.execute(
            "insert or ignore into headway_failed_queues (name) values (?)", (queue.failed,)
        )
        bound = [(event_type, queue.name) for event_type in dict.fromkeys(queue.event_types)]
        insert(connection, "or ignore into headway_bindings", bound)
    if queues:
        _count_again(connection)


def _count_again(connection: sqlite3.Connection) -> None:
    """Correct how many events each queue has: a process of an older version does not count."""
    taken = dict(connection.execute(_TAKEN).fetchall())
    for queue, items, free in connection.execute(_COUNTS).fetchall():
        there = free + taken.get(queue, 0)
        if items != there:
            connection.execute(_KEEP_COUNT, (there - items, queue))


def publish(
    connection: sqlite3.Connection, messages: Sequence[Message], moment: Moment
) -> list[int]:
    """Put messages into their queues; for each, say how many queues take it.

    An operation that a queue accepted before is recognised and not put there again, unless somebody
    sent it again on purpose.
    """
    routes = _routes(connection, messages)
    at, ahead = moment.at, moment.ahead
    targets = [
        (message, queue) for message, its in zip(messages, routes, strict=True) for queue in its
    ]
    known = _accept(connection, targets, at)
    rows = []
    for message, queue in targets:
        travel = message.travel
        if known is not None and is_first_run(travel.generation):
            if (queue, travel.operation) in known:
                continue
            known.add((queue, travel.operation))
        rows.append(item_row(queue, message.body, travel, at, ahead))
    insert(connection, _ITEMS, rows)
    keep_count(connection, (row[0] for row in rows), 1)
    return [len(its) for its in routes]


def keep_count(connection: sqlite3.Connection, queues: Iterable[str], by: int) -> None:
    """Count an event in or out of each of these queues, which may be named many times."""
    for queue, number in Counter(queues).items():
        connection.execute(_KEEP_COUNT, (by * number, queue))


def _accept(
    connection: sqlite3.Connection, targets: Sequence[tuple[Message, str]], at: float
) -> set[tuple[str, str]] | None:
    """Count what is accepted; give what was accepted before, or None if nothing was."""
    rows = [(queue, message.travel.operation, at) for message, queue in targets]
    hold(connection, "accept")
    known: set[tuple[str, str]] | None = None
    if insert(connection, _ACCEPTED, rows) < len(rows):
        undo(connection, "accept")
        pairs = as_json([row[:2] for row in rows])
        known = set(_PAIRS.decode(connection.execute(_KNOWN, (pairs,)).fetchone()[0]))
        insert(connection, _ACCEPTED, rows)
    release(connection, "accept")
    return known


def _routes(connection: sqlite3.Connection, messages: Sequence[Message]) -> list[list[str]]:
    bindings, names = connection.execute(_BINDINGS).fetchone()
    queues: dict[str, list[str]] = {}
    for event_type, queue in _PAIRS.decode(bindings):
        queues.setdefault(event_type, []).append(queue)
    declared = frozenset(_NAMES.decode(names))
    return [
        queues.get(message.event_type, [])
        if message.queue is None
        else [_declared(message.queue, declared)]
        for message in messages
    ]


def _declared(queue: str, declared: frozenset[str]) -> str:
    if queue not in declared:
        known = ", ".join(sorted(declared)) or "none"
        raise ConfigurationError(
            f"queue={queue!r} is not accepted: it was never declared; these are: {known}"
        )
    return queue
