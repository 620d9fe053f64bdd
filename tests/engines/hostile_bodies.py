"""Bodies that do more to the connection they are given than write to their own tables."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

from headway.adapters.sqlite import liveness


def commits(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.commit()


def runs_a_script(connection: Any) -> None:
    connection.executescript("insert into own values ('half');")


def swallows(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    with suppress(sqlite3.Error):
        connection.rollback()


def closes(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.close()


def says(*statements: str) -> Callable[[Any], None]:
    def body(connection: Any) -> None:
        connection.execute("insert into own values ('half')")
        for statement in statements:
            connection.execute(statement)

    body.__name__ = statements[-1]
    return body


def says_and_swallows(statement: str) -> Callable[[Any], None]:
    def body(connection: Any) -> None:
        with suppress(sqlite3.Error):
            connection.execute(statement)

    body.__name__ = f"swallows {statement}"
    return body


def leaves_with(error: BaseException) -> Callable[[Any], None]:
    def body(connection: Any) -> None:
        connection.execute("insert into own values ('half')")
        raise error

    body.__name__ = f"leaves with {type(error).__name__}"
    return body


def generates(connection: Any) -> Iterator[None]:
    connection.execute("insert into own values ('half')")
    yield


async def suspends(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    await asyncio.sleep(0)


async def waits(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    await asyncio.sleep(60)


async def generates_later(connection: Any) -> AsyncIterator[None]:
    connection.execute("insert into own values ('half')")
    yield


def gives_a_generator(connection: Any) -> object:
    return (connection.execute("insert into own values (?)", (text,)) for text in ["half"])


def replaces_the_authorizer(connection: Any) -> None:
    connection.set_authorizer(lambda *_: sqlite3.SQLITE_OK)
    connection.execute("pragma query_only = on")


def removes_the_authorizer(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.set_authorizer(None)


def repeats_a_statement_of_ours(connection: Any) -> None:
    connection.execute(liveness._LEAVE, ("x",))


SETTINGS = [
    "pragma query_only = on",
    "pragma locking_mode = exclusive",
    "pragma user_version = 7",
    "PRAGMA Application_Id(7)",
    "pragma defer_foreign_keys = on",
    "pragma writable_schema = on",
    "attach ':memory:' as other",
    "detach main",
    "drop table headway_items",
    "alter table headway_items rename to lost",
    "alter table HEADWAY_ITEMS add column mine",
    "drop index headway_done_over",
    "create index mine on headway_items (body)",
    "create table headway_mine (x)",
    "create temp table headway_items (x)",
    "create view headway_mine as select 1",
    "create trigger mine after insert on headway_done begin select raise(abort, 'no'); end",
    "create temp trigger mine after insert on headway_done begin select raise(abort, 'no'); end",
    "insert into headway_documents values (99, 'c', 'd', '{}')",
    "update headway_items set token = null",
    "delete from Headway_Workers",
]
TRICKS = [
    says("create temp table mine (x)", "alter table temp.mine rename to headway_items"),
    says(
        "create temp trigger mine after insert on own begin delete from headway_items; end",
        "insert into own values ('more')",
    ),
    generates,
    suspends,
    waits,
    generates_later,
    gives_a_generator,
    replaces_the_authorizer,
    removes_the_authorizer,
    repeats_a_statement_of_ours,
]
ENDINGS = ["COMMIT", "release headway_unit", "insert or rollback into own values ('there')"]
ENDS = (ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit)

HOSTILE: list[Callable[[Any], object]] = [
    *(says(statement) for statement in SETTINGS),
    *(says_and_swallows(statement) for statement in SETTINGS),
    *TRICKS,
    *(leaves_with(error()) for error in ENDS),
    commits,
    runs_a_script,
    swallows,
    closes,
    *(says(statement) for statement in ENDINGS),
    says_and_swallows(ENDINGS[-1]),
]
