"""Count the work SQLite does: steps of its virtual machine, on every connection of a test."""

import sqlite3
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headway.adapters.sqlite import schema
from headway.adapters.sqlite.connection import Connection, connect

T = TypeVar("T")

_EVERY = 10
"""Steps between two calls of the progress handler."""


class Steps:
    """The steps since the last question, counted in tens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0

        def counting(*args: Any, **options: Any) -> Connection:
            connection = connect(*args, **options)
            connection.set_progress_handler(self._more, _EVERY)
            return connection

        monkeypatch.setattr(schema, "connect", counting)

    async def of(self, work: Awaitable[T]) -> tuple[int, T]:
        """Give the steps of some work, and its answer."""
        before = self.taken
        answer = await work
        return self.taken - before, answer

    def _more(self) -> None:
        self.taken += _EVERY


def fill(path: Path, *statements: str, **values: Any) -> None:
    """Write rows into a file, past Headway, in one transaction."""
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement, values)
    connection.close()
