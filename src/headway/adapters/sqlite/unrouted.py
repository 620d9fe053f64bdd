"""Unrouted events: rows that a queue takes over in the transaction that declares it."""

# ruff: noqa: S608 (statements are put together from parts of our own; values are bound)

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime

from headway.adapters.sqlite import publishing
from headway.adapters.sqlite.bell import Bell
from headway.adapters.sqlite.publishing import SHOWN_TYPE, TAKERS
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.rows import text
from headway.adapters.sqlite.statements import as_json
from headway.adapters.sqlite.timeline import Timeline
from headway.adapters.sqlite.writer import Writer
from headway.core.travel import Travel
from headway.ports.unrouted import OnStep, UnroutedEvent

_COUNTS = f"select {SHOWN_TYPE}, count(*) from headway_unrouted where {{which}} group by 1"
_AT = "case when typeof(at) in ('real', 'integer') then at else 0 end"
_OLDEST = f"""
select {SHOWN_TYPE}, {_AT} from headway_unrouted
where id in (select min(id) from headway_unrouted group by {SHOWN_TYPE})
"""
_WAITS = "select 1 from headway_unrouted_types limit 1"
_TAKEN = "select distinct event_type from headway_bindings order by event_type"
_PAGE = f"""
select {SHOWN_TYPE}, cast(operation as blob), {_AT}, coalesce(cast(body as blob), x'')
from headway_unrouted where {{which}} order by id limit ?
"""
_PURGED = "update headway_forgotten set done = done + ?, purged = purged + ?"


class SqliteUnrouted:
    """Reads on connections for reading; a change is one commit."""

    def __init__(self, writer: Writer, readers: Readers, bell: Bell, time: Timeline) -> None:
        self._writer = writer
        self._readers = readers
        self._bell = bell
        self._time = time

    async def counts(self) -> Mapping[str, int]:
        every = _COUNTS.format(which="true")
        return dict(await self._readers.run(lambda c: c.execute(every).fetchall()))

    async def oldest(self) -> Mapping[str, datetime]:
        moment = self._time.moment()
        rows = await self._readers.run(lambda c: c.execute(_OLDEST).fetchall())
        return {event_type: moment.shown(at) for event_type, at in rows}

    async def taken_types(self) -> Sequence[str]:
        rows = await self._readers.run(lambda c: c.execute(_TAKEN).fetchall())
        return [event_type for (event_type,) in rows]

    async def takers(self, event_type: str) -> Sequence[str]:
        rows = await self._readers.run(lambda c: c.execute(TAKERS, (event_type,)).fetchall())
        return [queue for (queue,) in rows]

    async def read(
        self,
        limit: int,
        *,
        event_types: Sequence[str] | None = None,
        operations: Sequence[str] | None = None,
    ) -> Sequence[UnroutedEvent]:
        which, values = _which(event_types, operations)

        def page(connection: sqlite3.Connection) -> list[UnroutedEvent]:
            moment = self._time.moment()
            rows = connection.execute(_PAGE.format(which=which), (*values, limit))
            return [
                UnroutedEvent(
                    event_type=event_type,
                    body=body,
                    travel=Travel(operation=text(operation)),
                    at=moment.shown(at),
                )
                for event_type, operation, at, body in rows
            ]

        return await self._readers.run(page)

    async def route(
        self, event_types: Sequence[str] | None = None, *, on_step: OnStep | None = None
    ) -> int:
        if not await self._readers.run(lambda c: c.execute(_WAITS).fetchone()):
            return 0
        moved = 0
        while some := await self._writer.run(
            lambda c: publishing.route(c, event_types, self._time.moment())
        ):
            moved += some.total()
            self._bell.ring()
            if on_step is not None:
                on_step(some)
        return moved

    async def purge(
        self,
        event_types: Sequence[str] | None = None,
        *,
        operations: Sequence[str] | None = None,
        on_step: OnStep | None = None,
    ) -> int:
        if event_types is None and operations is None:
            return 0
        which, values = _which(event_types, operations)

        def work(connection: sqlite3.Connection) -> Mapping[str, int]:
            counted = connection.execute(_COUNTS.format(which=which), values)
            chosen = dict(counted.fetchall())
            removed = publishing.remove_unrouted(connection, which, values)
            connection.execute(_PURGED, (removed, removed))
            return chosen

        removed = await self._writer.run(work)
        if on_step is not None:
            on_step(removed)
        return sum(removed.values())


def _which(
    event_types: Sequence[str] | None, operations: Sequence[str] | None
) -> tuple[str, tuple[str, ...]]:
    """Give a condition, and the values for it."""
    chosen = {SHOWN_TYPE: event_types, "operation": operations}
    given = {column: names for column, names in chosen.items() if names is not None}
    each = "{} in (select value from json_each(?))".format
    condition = " and ".join(map(each, given))
    return condition or "true", tuple(as_json(list(names)) for names in given.values())
