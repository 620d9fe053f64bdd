"""Count the work SQLite does: steps of its virtual machine, and rows that Python reads."""

import sqlite3
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

_EVERY = 10
"""Steps between two calls of the progress handler."""


class Steps:
    """The steps and rows of all connections that are opened from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        self.rows = 0
        connect = sqlite3.connect

        def counting(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **options)
            connection.set_progress_handler(self._more, _EVERY)
            connection.row_factory = self._row
            return connection

        monkeypatch.setattr(sqlite3, "connect", counting)

    async def of(self, work: Awaitable[T]) -> tuple[int, T]:
        """Give the steps of some work, and its answer."""
        before = self.taken
        answer = await work
        return self.taken - before, answer

    def _more(self) -> None:
        self.taken += _EVERY

    def _row(self, _cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        self.rows += 1
        return row


def fill(path: Path, *statements: str, **values: Any) -> None:
    """Write rows into a file, past Headway, in one transaction."""
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement, values)
    connection.close()
