"""The store in one SQLite file, which the sequences may share."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from headway.engines import Tables
from headway.systems.uptime import sqlite_rows as rows
from headway.systems.uptime.effects import Change, Effect, Outcome, settle
from headway.systems.uptime.memory_store import changed
from headway.systems.uptime.monitors import Detector, Monitor, Subscription
from headway.systems.uptime.results import CheckStatus
from headway.systems.uptime.store import Check, MonitorChange, Rejected, Totals


class SqliteStore:
    """Writes of one process go in groups, those of several take turns."""

    def __init__(self, path: str | Path, *, synchronous: str = "full") -> None:
        self._tables = Tables(path, rows.SCHEMA, synchronous=synchronous)

    async def prepare(self) -> None:
        await self._tables.prepare()

    async def load(self, subscription_ids: Sequence[str]) -> Mapping[str, Monitor]:
        wanted = set(subscription_ids)
        return await self._tables.read(lambda connection: rows.monitors(connection, wanted))

    async def apply(self, effects: Sequence[Effect]) -> Sequence[Change]:
        return await self._tables.write(lambda connection: _applied(connection, effects))

    async def save(
        self, subscriptions: Sequence[Subscription], detectors: Mapping[str, Detector]
    ) -> None:
        values = [
            (
                each.subscription_id,
                rows.packed(each),
                rows.packed(detectors.get(each.subscription_id)),
            )
            for each in subscriptions
        ]
        await self._tables.write(
            lambda connection: connection.executemany(rows.SAVE, values).close()
        )

    async def change(self, subscription_id: str, change: MonitorChange) -> None:
        def write(connection: sqlite3.Connection) -> None:
            monitor = rows.monitors(connection, {subscription_id}).get(subscription_id)
            if monitor is None:
                return
            if change.delete:
                connection.execute(rows.DELETE, (subscription_id,))
            else:
                after = changed(monitor, change)
                rows.write(connection, monitor, after)
                if after.subscription is not monitor.subscription:
                    connection.execute(
                        rows.SET_SUBSCRIPTION, (rows.packed(after.subscription), subscription_id)
                    )

        await self._tables.write(write)

    async def reject(self, raw: bytes, reason: str, at: datetime) -> None:
        values = (raw, reason, at.astimezone(UTC).isoformat())
        await self._tables.write(lambda c: c.execute(rows.REJECT, values).close())

    async def close(self) -> None:
        await self._tables.close()

    async def checks(self, subscription_id: str) -> Sequence[Check]:
        def read(connection: sqlite3.Connection) -> list[Check]:
            found = connection.execute(rows.CHECKS, (subscription_id,)).fetchall()
            return [
                Check(key, at, status, guid, bool(gone)) for key, at, status, guid, gone in found
            ]

        return await self._tables.read(read)

    async def totals(self) -> Totals:
        found = await self._tables.read(lambda c: c.execute(rows.TOTALS).fetchone())
        return Totals(*found)

    async def rejected(self, limit: int) -> Sequence[Rejected]:
        found = await self._tables.read(lambda c: c.execute(rows.REJECTED, (limit,)).fetchall())
        return [
            Rejected(raw, reason, None if at is None else datetime.fromisoformat(at))
            for raw, reason, at in found
        ]

    async def count(self, counts: Mapping[str, float]) -> None:
        values = list(counts.items())
        await self._tables.write(lambda c: c.executemany(rows.COUNT, values).close())

    async def counts(self) -> Mapping[str, float]:
        return await self._tables.read(lambda c: dict(c.execute(rows.COUNTS).fetchall()))


def _applied(connection: sqlite3.Connection, effects: Sequence[Effect]) -> list[Change]:
    """Settle effects one after another: the second of a monitor sees what the first one did."""
    known = rows.monitors(connection, {effect.result.subscription_id for effect in effects})
    changes = []
    for effect in effects:
        key = effect.result.subscription_id
        before = known.get(key)

        def is_missed(time: int, key: str = key) -> bool:
            return connection.execute(rows.MISSED, (key, time)).fetchone() is not None

        change = settle(before, effect, is_missed)
        if before is not None and change.monitor is not None:
            rows.write(connection, before, change.monitor)
            known[key] = change.monitor
        connection.executemany(rows.RECORD, _lines(effect, change))
        if change.outcome is Outcome.RETRACTED:
            connection.execute(rows.RETRACT, (key, effect.result.scheduled_check_time_ms))
        if change.incident is not None:
            at = effect.result.scheduled_check_time_ms
            connection.execute(rows.TELL, (key, change.incident, at))
        changes.append(change)
    return changes


def _lines(effect: Effect, change: Change) -> Iterable[tuple[str, int, str, str]]:
    result = effect.result
    for time in change.misses:
        yield result.subscription_id, time, CheckStatus.MISSED_WINDOW.value, ""
    if change.outcome in {Outcome.APPLIED, Outcome.RETRACTED}:
        at = result.scheduled_check_time_ms
        yield result.subscription_id, at, result.status.value, result.guid
