"""Tables of one's own in the file of an engine."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from headway import connect
from headway.engines import Tables
from headway.errors import StorageLostError

SCHEMA = ("create table if not exists notes (text text)",)


def add(text: str) -> Callable[[sqlite3.Connection], None]:
    return lambda connection: connection.execute("insert into notes values (?)", (text,)).close()


def texts(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("select text from notes order by rowid")]


async def test_own_tables_live_in_the_file_of_an_engine(tmp_path: Path) -> None:
    path = tmp_path / "headway.db"
    one, other = Tables(path, SCHEMA), Tables(path, SCHEMA)
    async with connect(f"sqlite:///{path}") as bus:
        await bus.publish("Noted", {})
        await asyncio.gather(one.prepare(), other.prepare())
        await asyncio.gather(*(tables.write(add("n")) for tables in (one, other) for _ in "12345"))
        assert await one.read(texts) == ["n"] * 10
    await one.close()
    await other.close()


async def test_work_that_raises_leaves_nothing_and_disturbs_no_other(tmp_path: Path) -> None:
    tables = Tables(tmp_path / "headway.db", SCHEMA)
    await tables.prepare()

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("insert into notes values ('half')")
        raise LookupError("no more")

    ends = await asyncio.gather(
        tables.write(add("a")),
        tables.write(fail),
        tables.write(add("b")),
        return_exceptions=True,
    )
    assert [type(end) for end in ends] == [type(None), LookupError, type(None)]
    assert await tables.read(texts) == ["a", "b"]
    await tables.close()


async def test_a_file_that_was_put_in_the_place_of_another_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "headway.db"
    tables = Tables(path, SCHEMA)
    await tables.prepare()
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"headway.db{suffix}").rename(tmp_path / f"old.db{suffix}")
    path.touch()
    for call in (tables.write(add("lost")), tables.read(texts)):
        with pytest.raises(StorageLostError, match="was replaced"):
            await call
    await tables.close()
    assert path.stat().st_size == 0
