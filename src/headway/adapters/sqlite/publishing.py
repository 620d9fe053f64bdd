"""Messages on their way into queues, inside a write transaction.

An event that no queue takes is a row of `headway_unrouted`. It is accepted under a name that no
queue can have, so that the books know of it too. The transaction that declares a queue moves the
first of them there; if there are many, further ones move the rest, so that none holds the file for
long. From the declaration on, no event of the type becomes unrouted.
"""

# ruff: noqa: S608 (statements are put together from parts of our own; values are bound)

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from headway.adapters.sqlite.connection import IS_UTF8
from headway.adapters.sqlite.rows import ITEM_COLUMNS, item_row, stored
from headway.adapters.sqlite.savepoints import hold, release, undo
from headway.adapters.sqlite.statements import as_json, insert
from headway.adapters.sqlite.timeline import Moment
from headway.core.errors import ConfigurationError
from headway.core.event import FIRST_GENERATION, is_first_run
from headway.ports.bus import Message, Queue
from headway.ports.unrouted import MALFORMED

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
UNROUTED = "unrouted "
"""With the event type behind it: what unrouted events are accepted as, in place of a queue."""
_KEEP = "into headway_unrouted (event_type, operation, at, body)"
_AT_ONCE = 10_000
_IS_TEXT = f"typeof({{0}}) = 'text' and {IS_UTF8}(cast({{0}} as blob))".format
_IS_TYPE = f"event_type <> '' and {_IS_TEXT('event_type')}"
IS_SOUND = f"""
{_IS_TYPE} and {_IS_TEXT("operation")} and typeof(at) in ('real', 'integer')
and (typeof(body) = 'blob' or {_IS_TEXT("body")})
"""
"""The row of an unrouted event is as Headway writes it; another one is never routed."""
SHOWN_TYPE = f"case when {IS_SOUND} then event_type else '{MALFORMED}' end"
_WAITING = f"select event_type, takers from headway_unrouted_types where {_IS_TYPE}"
_TAKEN_BY = "update headway_unrouted_types set takers = ? where event_type = ?"
TAKERS = "select queue from headway_bindings where event_type = ? order by queue"
_LAST = f"""
select max(id) from (
    select id from headway_unrouted where event_type = ? and {IS_SOUND} order by id limit ?
)
"""
_FIRST_OF_TYPE = f"event_type = :event_type and id <= :last and {IS_SOUND}"
_MOVE = f"""
insert into headway_items (
    queue, due, operation, generation, failures, not_yet, parked_seconds, requeues, body
)
select :queue, :now, operation, '{FIRST_GENERATION}', 0, 0, 0.0, 0, body
from headway_unrouted u
where {_FIRST_OF_TYPE} and not exists (
    select 1 from headway_accepted a where a.queue = :queue and a.operation = u.operation
)
order by id
"""
_MOVED = f"""
insert or ignore into headway_accepted (queue, operation, at)
select :queue, operation, :now from headway_unrouted where {_FIRST_OF_TYPE}
"""
_ACCEPTED = "or ignore into headway_accepted (queue, operation, at)"
_KNOWN = """
select json_group_array(json_array(queue, operation)) from headway_accepted
where (queue, operation) in (
    select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(?)
)
"""


def declare(
    connection: sqlite3.Connection, queues: Sequence[Queue], moment: Moment
) -> Counter[str]:
    """Say which queues there are and what they take; what others declared stays.

    Events that were unrouted, and that one of these queues takes, go there; say how many of which
    types.
    """
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
    return route(connection, [each for queue in queues for each in queue.event_types], moment)


def _count_again(connection: sqlite3.Connection) -> None:
    """Correct how many events each queue has: other programs may have added or deleted rows."""
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
    sent it again on purpose. What no queue takes is kept as unrouted, if it needs a consumer.
    """
    routes = _routes(connection, messages)
    at, ahead = moment.at, moment.ahead
    targets = [
        (message, queue) for message, its in zip(messages, routes, strict=True) for queue in its
    ]
    rows = [
        item_row(queue, message.body, message.travel, at, ahead)
        for message, queue in _new(connection, targets, at)
    ]
    insert(connection, _ITEMS, rows)
    keep_count(connection, (row[0] for row in rows), 1)
    if [] in routes:
        unrouted = [
            (message, UNROUTED + message.event_type)
            for message, its in zip(messages, routes, strict=True)
            if not its and message.needs_consumer
        ]
        kept = [
            (message.event_type, message.travel.operation, at, stored(message.body))
            for message, _ in _new(connection, unrouted, at)
        ]
        insert(connection, _KEEP, kept)
    return [len(its) for its in routes]


def route(
    connection: sqlite3.Connection, event_types: Sequence[str] | None, moment: Moment
) -> Counter[str]:
    """Move unrouted events to the queues that take their types by now; say how many of each type.

    At most so many of a type as one commit should hold: call it until it moves none. All of them go
    to the queues that took the type when the first were moved.
    """
    moved: Counter[str] = Counter()
    for event_type, takers in connection.execute(_WAITING).fetchall():
        if event_types is not None and event_type not in event_types:
            continue
        if takers is None:
            queues = [queue for (queue,) in connection.execute(TAKERS, (event_type,))]
            if queues:
                connection.execute(_TAKEN_BY, (as_json(queues), event_type))
        else:
            queues = _NAMES.decode(takers)
        (last,) = connection.execute(_LAST, (event_type, _AT_ONCE)).fetchone()
        if last is None:
            continue  # none that can be read
        which = {"event_type": event_type, "last": last}
        for queue in queues:
            values = {**which, "queue": queue, "now": moment.at}
            put = connection.execute(_MOVE, values).rowcount
            connection.execute(_MOVED, values)
            connection.execute(_KEEP_COUNT, (put, queue))
        if queues:
            moved[event_type] += remove_unrouted(connection, _FIRST_OF_TYPE, which)
    return moved


def remove_unrouted(
    connection: sqlite3.Connection, which: str, values: Mapping[str, object] | Sequence[str]
) -> int:
    """Take unrouted events out of their place and of the books; say how many."""
    connection.execute(
        f"delete from headway_accepted where (queue, operation) in ("
        f"select '{UNROUTED}' || event_type, operation from headway_unrouted where {which})",
        values,
    )
    return connection.execute(f"delete from headway_unrouted where {which}", values).rowcount


def keep_count(connection: sqlite3.Connection, queues: Iterable[str], by: int) -> None:
    """Count an event in or out of each of these queues, which may be named many times."""
    for queue, number in Counter(queues).items():
        connection.execute(_KEEP_COUNT, (by * number, queue))


def _new(
    connection: sqlite3.Connection, targets: Sequence[tuple[Message, str]], at: float
) -> Sequence[tuple[Message, str]]:
    """Accept messages, each for one place; give those that have to be put there."""
    known = _accept(connection, targets, at)
    if known is None:
        return targets
    new = []
    for message, place in targets:
        travel = message.travel
        if is_first_run(travel.generation):
            if (place, travel.operation) in known:
                continue
            known.add((place, travel.operation))
        new.append((message, place))
    return new


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
