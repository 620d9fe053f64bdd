"""What a type checker makes of the public functions; checked by mypy, never run."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, assert_type

import psycopg

from headway import (
    classify_dsql_error,
    create_operations_table,
    is_oc000_error,
    retry,
    retry_on_oc000,
    run_transaction,
)
from headway.retrying import Classifier, Rule, Verdict


@retry
def plain(number: int, *, text: str = "") -> str:
    return f"{number}{text}"


@retry
async def awaited(number: int) -> str:
    return str(number)


@retry(on=(ConnectionError, TimeoutError), max_attempts=3, ttl=timedelta(seconds=5))
def with_settings(number: int) -> str:
    return str(number)


@retry_on_oc000()
def transaction(number: int) -> str:
    return str(number)


@retry_on_oc000(stop_after=10, min_wait=0.2, max_wait=5.0)
async def awaited_transaction(number: int) -> str:
    return str(number)


class Service:
    @retry
    def method(self, number: int) -> str:
        return str(number)

    @retry_on_oc000()
    async def awaited_method(self, number: int) -> str:
        return str(number)

    @classmethod
    @retry
    def of_class(cls) -> "Service":
        return cls()


assert_type(plain(1, text="a"), str)
assert_type(with_settings(1), str)
assert_type(transaction(1), str)
assert_type(Service().method(1), str)
assert_type(Service.of_class(), Service)
assert_type(retry(len)("abc"), int)

plain("1")  # type: ignore[arg-type]
plain(1, other=2)  # type: ignore[call-arg]
transaction("1")  # type: ignore[arg-type]
Service().method("1")  # type: ignore[arg-type]
retry(on=KeyboardInterrupt)  # type: ignore[arg-type]
retry(on=ConnectionError, max_attempts="3")  # type: ignore[call-overload]
retry(backoff=0.5)  # type: ignore[call-overload]
retry_on_oc000(stop_after="5")  # type: ignore[arg-type]


async def inside() -> None:
    coroutine: Coroutine[Any, Any, str] = awaited(1)
    assert_type(await coroutine, str)
    assert_type(await awaited(1), str)
    await awaited("1")  # type: ignore[arg-type]
    assert_type(await awaited_transaction(1), str)
    assert_type(await Service().awaited_method(1), str)


def connect_sqlite() -> sqlite3.Connection:
    return sqlite3.connect("events.db")


def sqlite_body(connection: sqlite3.Connection) -> int:
    return connection.total_changes


def psycopg_body(connection: psycopg.Connection) -> str:
    return connection.info.dbname


async def async_psycopg_body(connection: psycopg.AsyncConnection) -> list[str]:
    return [connection.info.dbname]


async def connect_async() -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect("")


def find_sqlite(connection: sqlite3.Connection) -> bool:
    return connection.in_transaction


async def find_async(connection: psycopg.AsyncConnection) -> bool:
    return connection.closed


connect_psycopg: Callable[[], psycopg.Connection] = partial(psycopg.connect, "")

assert_type(run_transaction(connect_sqlite, sqlite_body, operation_id="e-1"), int)
assert_type(run_transaction(connect_sqlite, sqlite_body, operation_id="e-1", find=find_sqlite), int)
assert_type(run_transaction(connect_psycopg, psycopg_body, operation_id="e-1"), str)


async def transactions() -> None:
    task = asyncio.create_task(
        run_transaction(connect_async, async_psycopg_body, operation_id="e-1")
    )
    assert_type(await task, list[str])
    assert_type(
        await run_transaction(
            connect_async, async_psycopg_body, operation_id="e-1", find=find_async
        ),
        list[str],
    )
    assert_type(
        await run_transaction(
            lambda: psycopg.AsyncConnection.connect(""), async_psycopg_body, operation_id="e-1"
        ),
        list[str],
    )
    await run_transaction(connect_sqlite, async_psycopg_body, operation_id="e-1")  # type: ignore[arg-type]
    await create_operations_table(connect_async)


run_transaction(connect_sqlite, sqlite_body)  # type: ignore[call-overload]

create_operations_table(connect_sqlite)

assert_type(classify_dsql_error(ValueError()), tuple[bool, str, str | None])
assert_type(is_oc000_error(ValueError()), bool)

rule = Rule(name="mine", verdict=Verdict.TRANSIENT, error_type="MINE", types={KeyError})
assert_type(Classifier(rules=(rule,)).before([rule]), Classifier)
