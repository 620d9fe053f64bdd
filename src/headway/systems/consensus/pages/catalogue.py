"""The folder of reports: pages of threads, and an index that costs as much with many as with few.

The rows of the index are kept in an SQLite file beside the pages. Up to some hundred threads the
index shows all of them. Beyond, there is a page for each month, and only that of the thread is
written anew. Several processes may write: one after the other, so that no older page stays.
"""

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.systems.consensus.pages.index_page import (
    Month,
    Row,
    index_page,
    month_file,
    month_page,
    months_page,
    row_of,
)
from headway.systems.consensus.pages.report import Report
from headway.systems.consensus.pages.thread_markdown import thread_markdown
from headway.systems.consensus.pages.thread_page import thread_page

_ON_ONE_PAGE = 300
_PATIENCE = 30.0
_TABLE = """
CREATE TABLE IF NOT EXISTS threads (
    thread_id TEXT PRIMARY KEY, month TEXT NOT NULL, last TEXT NOT NULL,
    messages INTEGER NOT NULL, decided INTEGER NOT NULL, line TEXT NOT NULL
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS threads_by_month ON threads (month, last, messages, decided)"


class Catalogue:
    """Writes reports into a folder, which is made with the first of them."""

    def __init__(self, folder: Path, *, on_one_page: int = _ON_ONE_PAGE) -> None:
        self._folder = folder
        self._on_one_page = on_one_page
        self._file = folder / "index.db"
        self._one_at_a_time = threading.Lock()
        self._rows: sqlite3.Connection | None = None

    def publish(self, report: Report) -> Path:
        """Write the pages of a thread, and what the index shows of it; give the page."""
        path = self._folder / f"{report.thread_id}.html"
        with self._alone() as rows:
            _replace(self._folder / f"{report.thread_id}.md", thread_markdown(report))
            _replace(path, thread_page(report))
            self._list(rows, row_of(report))
        return path

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """Have the folder for oneself: whoever comes later writes later."""
        with self._one_at_a_time:
            rows = self._opened()
            rows.execute("BEGIN IMMEDIATE")
            try:
                yield rows
            except BaseException:
                rows.execute("ROLLBACK")
                raise
            rows.execute("COMMIT")

    def _opened(self) -> sqlite3.Connection:
        # It stays open: with the last connection SQLite puts everything in order, and waits.
        if self._rows is None or not self._file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            rows = sqlite3.connect(
                self._file, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, rows.close)
            rows.execute("PRAGMA journal_mode = WAL")
            rows.execute("PRAGMA synchronous = NORMAL")
            rows.execute(_TABLE)
            rows.execute(_INDEX)
            self._rows = rows
        return self._rows

    def _list(self, rows: sqlite3.Connection, row: Row) -> None:
        before = rows.execute(
            "SELECT month FROM threads WHERE thread_id = ?", [row.thread_id]
        ).fetchone()
        rows.execute(
            "INSERT OR REPLACE INTO threads (thread_id, month, last, messages, decided, line) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            [row.thread_id, row.month, row.last, row.messages, row.decided, row.line],
        )
        months = {each.name: each for each in _months(rows)}
        count = sum(each.threads for each in months.values())
        if count <= self._on_one_page:
            page = index_page(_lines(rows), list(months.values()))
            _replace(self._folder / "index.html", page)
            return
        # When there are too many for one page, every month gets its own.
        changed = {row.month, *(before or [])} if count > self._on_one_page + 1 else {*months}
        for name in changed:
            month = months.get(name) or Month(name=name, threads=0, messages=0, decided=0)
            _replace(self._folder / month_file(name), month_page(_lines(rows, name), month))
        _replace(self._folder / "index.html", months_page(list(months.values())))


def _lines(rows: sqlite3.Connection, month: str | None = None) -> list[str]:
    """Give the lines of all threads, or of a month's, the latest first."""
    order = "ORDER BY last DESC, thread_id DESC"
    if month is None:
        found = rows.execute(f"SELECT line FROM threads {order}")  # noqa: S608 (our own words)
    else:
        found = rows.execute(f"SELECT line FROM threads WHERE month = ? {order}", [month])  # noqa: S608 (our own words)
    return [line for (line,) in found]


def _months(rows: sqlite3.Connection) -> list[Month]:
    found = rows.execute(
        "SELECT month, count(*), sum(messages), sum(decided) FROM threads GROUP BY month"
    )
    return [
        Month(name=name, threads=threads, messages=messages, decided=decided)
        for name, threads, messages, decided in found
    ]


def _replace(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees the old one or the new one, whole."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    beside.write_text(text, encoding="utf-8", errors="replace")
    beside.replace(path)
