"""Statements about many rows at once.

Python lets other threads run at every step of a statement, and has to wait for them each time. With
a busy event loop a group of 256 rows, one step each, can take half a second. So many rows are
written by one statement, and read as one JSON text.
"""

# ruff: noqa: S608 (statements are put together from parts of our own; values are bound)

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

Row = Sequence[Any]

_CHUNKS = (256, 64, 16, 4, 1)
"""Few sizes, so that every statement is one that SQLite has prepared before."""

json_text = msgspec.json.Encoder()


def as_json(values: Any) -> str:
    """Give a list as the parameter for `json_each`."""
    return json_text.encode(values).decode()


def insert(
    connection: sqlite3.Connection, into: str, rows: Sequence[Row], finally_: str = ""
) -> int:
    """Insert rows; `into` names the columns, `finally_` what to do with a conflict."""
    inserted, start = 0, 0
    for size in _CHUNKS:
        while len(rows) - start >= size:
            chunk = rows[start : start + size]
            statement = _insert(into, size, len(chunk[0]), finally_)
            inserted += connection.execute(statement, _flat(chunk)).rowcount
            start += size
    return inserted


@lru_cache(maxsize=256)
def _insert(into: str, size: int, width: int, finally_: str) -> str:
    row = f"({','.join('?' * width)})"
    return f"insert {into} values {','.join([row] * size)} {finally_}"


def _flat(rows: Iterable[Row]) -> list[Any]:
    return list(chain.from_iterable(rows))
