"""Where everything is: counted in one read, so at one instant.

`depths` reads how many events each queue has, a number that every commit keeps (schema.py) and a
worker that starts corrects, and
counts by index what is leased, delayed, parked or suspect; the rest is ready. `balance` counts
every row, and does not rely on that number.
"""

# ruff: noqa: S608 (statements are put together from parts of our own; values are bound)

import sqlite3
from collections.abc import Mapping, Sequence
from typing import cast

from headway.adapters.sqlite.publishing import SHOWN_TYPE, UNROUTED
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.statements import as_json
from headway.adapters.sqlite.timeline import Moment, Timeline
from headway.ports.places import Astray, Balance, Depths, Fault, QueueCount

_PLACE = """
case when token is not null then 'leased' when place = 'parked' then 'parked'
     when due <= :now then 'ready' else 'delayed' end
"""
_QUEUES = "select name from headway_queues order by name"
_ROWS = f"""
select queue,
       count(*) filter (where place = 'ready'), count(*) filter (where place = 'leased'),
       count(*) filter (where place = 'delayed'), count(*) filter (where place = 'parked'),
       count(*) filter (where returns >= 2), min(due) filter (where place = 'ready')
from (select queue, returns, due, {_PLACE} as place from headway_items) group by queue
"""
_FAILED = """
select q.name, count(l.id) from headway_failed_queues q
left join headway_letters l on l.queue = q.name group by q.name order by q.name
"""
_WORKERS = "select count(*) from headway_workers"

_DEPTHS = """
select name, items,
       (select count(*) from headway_items indexed by headway_items_free
        where queue = name and token is null and due > :now),
       (select count(*) from headway_items indexed by headway_items_parked
        where queue = name and place = 'parked' and token is null),
       (select count(*) from headway_items indexed by headway_items_parked
        where queue = name and place = 'parked' and token is null and due > :now),
       (select count(*) from headway_items indexed by headway_items_suspect
        where queue = name and returns >= 2)
from headway_queues order by name
"""
_LEASED = """
select queue, count(*) from headway_items indexed by headway_items_taken
where token is not null group by queue
"""
_OLDEST = """
select due from headway_items indexed by headway_items_free
where queue = ? and token is null and due <= ? and place <> 'parked' order by due limit 1
"""
_LETTERS = "select name, letters from headway_failed_queues order by name"
_UNROUTED = "select coalesce(sum(events), 0) from headway_unrouted_types"

# The ends of operations, once for each in a queue. What failed is in its letter, what was requeued
# in its queue again. An operation that was sent again on purpose, under another generation, is
# where that one is.
_FINAL = "d.ended not in ('failed', 'requeued')"
ENDS = f"""
select d.queue, d.operation, d.ended from headway_done d
where {_FINAL}
  and not exists (
    select 1 from headway_items i
    where i.generation <> '0' and i.operation = d.operation and i.queue = d.queue
      and i.generation <> d.generation
  )
  and not exists (
    select 1 from headway_letters l
    where l.operation = d.operation and l.source_queue = d.queue and l.generation <> d.generation
  )
  and not exists (
    select 1 from headway_done e
    where e.generation <> '0' and e.operation = d.operation and e.queue = d.queue
      and e.id > d.id and e.ended not in ('failed', 'requeued')
  )
"""
DONE = f"""
select count(*), count(*) filter (where ended = 'purged') from ({ENDS})
"""
_ASTRAY = f"""
select cast(queue as blob), cast(operation as blob), sum(place = 'accepted'),
       group_concat(nullif(place, 'accepted')), count(*) over ()
from (
    select queue, operation, 'accepted' as place from headway_accepted
    union all select queue, operation, {_PLACE} from headway_items
    union all select source_queue, operation, 'failed' from headway_letters
    union all select queue, operation, 'done' from ({ENDS})
    union all select '{UNROUTED}' || event_type, operation, 'unrouted' from headway_unrouted
)
group by queue, operation
having sum(place = 'accepted') = 0 or count(*) <> 2
limit :limit
"""

# No index serves this: one would make every publish slower, for a question that is asked rarely.
# So each table is read once, however many operations are looked for.
_WHERE = f"""
with wanted (operation) as (select value from json_each(:wanted))
select operation, null from headway_accepted
where queue in (select name from headway_queues) and operation in wanted
union all
select operation, {_PLACE} || ' in ' || queue from headway_items where operation in wanted
union all select operation, 'failed in ' || queue from headway_letters where operation in wanted
union all select operation, 'done in ' || queue from ({ENDS}) where operation in wanted
union all
select operation, '{UNROUTED}' || {SHOWN_TYPE} from headway_unrouted where operation in wanted
"""
AT_ONCE = 50_000


class SqlitePlaces:
    """Counts on a connection for reading."""

    def __init__(self, readers: Readers, time: Timeline) -> None:
        self._readers = readers
        self._time = time

    async def depths(self) -> Depths:
        return await self._readers.run(lambda c: _depths(c, self._time.moment()))

    async def balance(self) -> Balance:
        return await self._readers.run(lambda c: _balance(c, self._time.moment()))

    async def astray(self, limit: int) -> tuple[int, Sequence[Astray]]:
        def read(connection: sqlite3.Connection) -> list[tuple[bytes, bytes, int, str, int]]:
            values = {"now": self._time.moment().at, "limit": max(limit, 1)}
            return connection.execute(_ASTRAY, values).fetchall()

        rows = await self._readers.run(read)
        found = [
            Astray(
                # Other programs may have written bytes that are no text.
                operation=operation.decode(errors="replace"),
                queue=queue.decode(errors="replace"),
                fault=_fault(accepted, there),
                places=there,
            )
            for queue, operation, accepted, places, _ in rows
            for there in [tuple(places.split(",")) if places else ()]
        ]
        return (rows[0][4] if rows else 0), found[:limit]

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        return await self._readers.run(lambda c: _where(c, operations, self._time.moment().at))


def _where(
    connection: sqlite3.Connection, operations: Sequence[str], now: float
) -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    different = list(dict.fromkeys(operations))
    for start in range(0, len(different), AT_ONCE):
        wanted = as_json(different[start : start + AT_ONCE])
        for operation, place in connection.execute(_WHERE, {"now": now, "wanted": wanted}):
            its = places.setdefault(operation, [])
            if place is not None:
                its.append(place)
    return places


def _depths(connection: sqlite3.Connection, moment: Moment) -> Depths:
    leased = dict(connection.execute(_LEASED).fetchall())
    queues = []
    for name, items, later, parked, parked_later, suspects in connection.execute(
        _DEPTHS, {"now": moment.at}
    ).fetchall():
        in_hand, delayed = leased.get(name, 0), later - parked_later
        ready = items - in_hand - delayed - parked
        oldest = connection.execute(_OLDEST, (name, moment.at)).fetchone() if ready else None
        # The number is wrong where another program added or deleted rows. A worker that starts
        # corrects it.
        ready = 0 if oldest is None else max(ready, 1)
        queues.append(
            QueueCount(
                queue=name,
                ready=ready,
                leased=in_hand,
                delayed=delayed,
                parked=parked,
                suspects=suspects,
                oldest=None if oldest is None else moment.shown(oldest[0]),
            )
        )
    return Depths(
        queues=queues,
        failed=dict(connection.execute(_LETTERS).fetchall()),
        workers=_number(connection, _WORKERS),
        unrouted=_number(connection, _UNROUTED),
    )


def _balance(connection: sqlite3.Connection, moment: Moment) -> Balance:
    done, purged = connection.execute(DONE).fetchone()
    forgotten = connection.execute("select done, purged from headway_forgotten").fetchone()
    accepted = _number(connection, "select count(*) from headway_accepted")
    there = {
        queue: QueueCount(
            queue=queue,
            ready=ready,
            leased=leased,
            delayed=delayed,
            parked=parked,
            suspects=suspects,
            oldest=None if oldest is None else moment.shown(oldest),
        )
        for queue, ready, leased, delayed, parked, suspects, oldest in connection.execute(
            _ROWS, {"now": moment.at}
        )
    }
    return Balance(
        queues=[there.get(name, QueueCount(queue=name)) for (name,) in connection.execute(_QUEUES)],
        failed=dict(connection.execute(_FAILED).fetchall()),
        done=done + forgotten[0],
        purged=purged + forgotten[1],
        accepted=accepted + forgotten[0],
        workers=_number(connection, _WORKERS),
        unrouted=_number(connection, "select count(*) from headway_unrouted"),
    )


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return cast("int", connection.execute(statement).fetchone()[0])


def _fault(accepted: int, there: tuple[str, ...]) -> Fault:
    if not accepted:
        return "surplus"
    return "twice" if there else "missing"
