"""Reports of errors, kept in an SQLite file of their own."""

import sqlite3
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from headway.core.error_report import ErrorFilter, ErrorReport, ErrorStats, KeptError, Outcome
from headway.core.errors import ConfigurationError

MOST = 10_000
_TABLES = """
create table if not exists reports (
    number integer primary key autoincrement, error_id text not null unique, at real not null,
    service text not null, level text not null, error_type text, outcome text, event text,
    report blob not null
);
create index if not exists reports_by_service on reports (service, number);
create index if not exists reports_by_level on reports (level, number);
create index if not exists reports_by_type on reports (error_type, number);
create index if not exists reports_by_outcome on reports (outcome, number);
create index if not exists reports_retrying on reports (event, service) where outcome = 'retrying';
"""
_SETTLE = """
update reports set outcome = ? where outcome = 'retrying' and event = ? and service = ?
"""
"""What became of an event is true of its earlier failures too."""


class SqliteErrorBook:
    """Keeps the newest reports; a lock makes its one connection fit for all threads."""

    def __init__(self, path: Path, *, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._counted: tuple[tuple[int, int], ErrorStats] | None = None
        try:
            self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._file.execute("pragma journal_mode = wal")
            self._file.executescript(_TABLES)
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"HEADWAY_ERRORS={str(path)!r} cannot be used ({error}): name a file that you may "
                "write to, in a folder that is there"
            ) from None

    def add(self, report: ErrorReport, error_id: str, now: datetime) -> None:
        body = msgspec.json.encode(report)
        of_event = (report.outcome, report.event_key)
        at = now.timestamp()
        row = (error_id, at, report.service, report.level, report.error_type, *of_event, body)
        with self._lock, self._file:
            self._file.execute("begin immediate")
            if report.outcome in {"final", "recovered"}:
                self._file.execute(_SETTLE, (*of_event, report.service))
            made = self._file.execute(
                "insert into reports"
                " (error_id, at, service, level, error_type, outcome, event, report)"
                " values (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            newest = made.lastrowid or 0
            self._file.execute("delete from reports where number <= ?", (newest - self._most,))

    def ids(self, which: ErrorFilter, *, limit: int, offset: int) -> tuple[Sequence[str], int]:
        asked = {name: value for name, value in msgspec.structs.asdict(which).items() if value}
        where = " where " + " and ".join(f"{name} = ?" for name in asked) if asked else ""
        with self._lock:
            (total,) = self._file.execute(
                f"select count(*) from reports{where}",  # noqa: S608 (names of columns only)
                (*asked.values(),),
            ).fetchone()
            rows = self._file.execute(
                f"select error_id from reports{where}"  # noqa: S608 (the same)
                " order by number desc limit ? offset ?",
                (*asked.values(), limit, offset),
            ).fetchall()
        return [error_id for (error_id,) in rows], total

    def get(self, error_id: str) -> KeptError | None:
        with self._lock:
            row = self._file.execute(
                "select error_id, at, outcome, report from reports where error_id = ?", (error_id,)
            ).fetchone()
        return None if row is None else _kept(*row)

    def stats(self) -> ErrorStats:
        with self._lock:
            # The one changes when another connection has written, the other when this one has.
            (others,) = self._file.execute("pragma data_version").fetchone()
            state = others, self._file.total_changes
            if self._counted is None or self._counted[0] != state:
                self._counted = state, self._count_all()
            return self._counted[1]

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _count_all(self) -> ErrorStats:
        by_level = self._count("level")
        return ErrorStats(
            total_errors=sum(by_level.values()),
            by_service=self._count("service"),
            by_level=by_level,
            by_type=self._count("error_type"),
            by_outcome=self._count("outcome"),
        )

    def _count(self, column: str) -> dict[str, int]:
        rows = self._file.execute(
            f"select coalesce({column}, 'unknown'), count(*) from reports"  # noqa: S608 (ours)
            " group by 1 order by 2 desc, 1"
        ).fetchall()
        return dict(rows)


def _kept(error_id: str, at: float, outcome: Outcome | None, body: bytes) -> KeptError:
    report = msgspec.json.decode(body, type=ErrorReport)
    return KeptError(
        error_id=error_id,
        timestamp=datetime.fromtimestamp(at, UTC),
        report=msgspec.structs.replace(report, outcome=outcome),
    )
