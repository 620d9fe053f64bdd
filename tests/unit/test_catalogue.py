"""The tables against the libraries they speak of: real names, real errors, real attributes."""

import asyncio
import builtins
import email.message
import errno
import importlib
import json
import socket
import sqlite3
import ssl
import urllib.error
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import aiormq.exceptions
import asyncpg
import httpx
import multidict
import pika.exceptions
import psycopg
import psycopg.errors
import pymongo.errors
import pytest
import redis.exceptions
import requests
import sqlalchemy
import sqlalchemy.exc
import urllib3.exceptions
import yarl

from headway import (
    ConfigurationError,
    DocumentNotFoundError,
    DuplicateEventError,
    OutcomeUnknownError,
)
from headway.errors import TransactionRolledBackError
from headway.retrying import DEFAULT_CLASSIFIER, DEFAULT_RULES, TRANSACTION_CLASSIFIER, Verdict

NOT_INSTALLED = {
    "psycopg2": "the older driver, which wants a C compiler; its one name is documented by PEP 249",
}

T, P, N, U = Verdict.TRANSIENT, Verdict.PERMANENT, Verdict.NOT_YET, Verdict.UNKNOWN_OUTCOME
CONFLICT = (T, "OC000_TRANSACTION_CONFLICT")
LOST = (T, "CONNECTION_ERROR")
UNKNOWN = (T, "UNKNOWN_ERROR")
FULL = (T, "RESOURCES_EXHAUSTED")
MISUSED = (P, "PROGRAMMING_ERROR")
INVALID = (P, "VALIDATION_ERROR")
LOGIN = (P, "CREDENTIALS_REFUSED")
TAKEN = (P, "UNIQUE_VIOLATION")
REFUSED = (P, "BROKER_REFUSED")


def verdict(error: BaseException) -> tuple[Verdict, str]:
    diagnosis = DEFAULT_CLASSIFIER.classify(error)
    return diagnosis.verdict, diagnosis.error_type


def named_classes() -> list[str]:
    names = {str(name) for rule in DEFAULT_RULES for name in rule.types}
    return sorted(name for name in names if name.partition(".")[0] not in NOT_INSTALLED)


def find(name: str) -> Any:
    """Import as much of a dotted name as is a module, and reach for the rest."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", named_classes())
def test_every_class_in_the_catalogue_exists_under_that_very_name(name: str) -> None:
    kind = find(name)
    assert issubclass(kind, BaseException)
    assert f"{kind.__module__}.{kind.__qualname__}" == name  # an alias would never match


def test_the_catalogue_is_written_as_it_is_compared() -> None:
    names = [rule.name for rule in DEFAULT_RULES]
    assert len(names) == len(set(names))
    for rule in DEFAULT_RULES:
        assert all(fragment == fragment.lower() for fragment in rule.text)
    for package in NOT_INSTALLED:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(package)
        assert any(str(n).startswith(f"{package}.") for rule in DEFAULT_RULES for n in rule.types)


def labelled(label: str, code: int | None = None) -> pymongo.errors.PyMongoError:
    error: pymongo.errors.PyMongoError = pymongo.errors.AutoReconnect("reset")
    if code is not None:
        error = pymongo.errors.OperationFailure("no", code, {})
    error._add_error_label(label)
    assert error.has_error_label(label)
    return error


def bulk(*codes: int) -> pymongo.errors.BulkWriteError:
    return pymongo.errors.BulkWriteError({"writeErrors": [{"code": code} for code in codes]})


def made(module: Any, *names: str) -> list[BaseException]:
    """Make errors that take no words."""
    return [getattr(module, name)() for name in names]


def failure(code: int) -> pymongo.errors.OperationFailure:
    return pymongo.errors.OperationFailure("no", code)


def answer(said: str) -> redis.exceptions.ResponseError:
    return redis.exceptions.ResponseError(said)


ERRORS: dict[tuple[Verdict, str], list[BaseException]] = {
    (N, "DOCUMENT_NOT_FOUND"): [DocumentNotFoundError("messages", ["m1"])],
    (P, "DUPLICATE_EVENT"): [DuplicateEventError("op")],
    (U, "CONNECTION_ERROR"): [
        OutcomeUnknownError("op", 3, "t"),
        labelled("UnknownTransactionCommitResult", 11602),
    ],
    (P, "CERTIFICATE_ERROR"): [ssl.SSLCertVerificationError("self-signed")],
    MISUSED: [
        ConfigurationError("no"),
        TransactionRolledBackError(),
        *made(builtins, "TypeError", "AttributeError", "KeyError", "ZeroDivisionError"),
        *made(builtins, "AssertionError", "RecursionError"),
        failure(263),
        pymongo.errors.InvalidName("no name"),
        pymongo.errors.InvalidOperation("closed"),
        redis.exceptions.DataError(),
    ],
    INVALID: [
        json.JSONDecodeError("bad", "{", 0),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ValueError("Connection must be provided"),
        failure(121),
        failure(10334),
        pymongo.errors.DocumentTooLarge("too large"),
        bulk(121),
        requests.exceptions.InvalidURL("no host"),
    ],
    LOST: [
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        BrokenPipeError(),
        TimeoutError(),
        asyncio.IncompleteReadError(b"", 5),
        socket.gaierror(-3, "try again"),
        OSError(errno.EHOSTUNREACH, "no route"),
        OSError("Multiple exceptions: [Errno 111] Connect call failed"),
        ssl.SSLEOFError(),
        psycopg.OperationalError("consuming input failed"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InterfaceError("connection was closed in the middle of operation"),
        asyncpg.InterfaceError(
            "cannot call fetch(): connection has been released back to the pool"
        ),
        asyncpg.InternalClientError("cannot switch to state 11; another operation is in progress"),
        sqlalchemy.exc.TimeoutError("QueuePool limit"),
        pymongo.errors.AutoReconnect("reset"),
        pymongo.errors.ServerSelectionTimeoutError("none"),
        pymongo.errors.NetworkTimeout("slow"),
        pymongo.errors.NotPrimaryError("not primary"),
        labelled("TransientTransactionError"),
        labelled("RetryableWriteError", 189),
        failure(10107),
        *made(redis.exceptions, "ConnectionError", "TimeoutError", "BusyLoadingError"),
        redis.exceptions.ReadOnlyError(),
        redis.exceptions.OutOfMemoryError("command not allowed"),
        redis.exceptions.MasterDownError("Link with MASTER is down"),
        answer("NOREPLICAS Not enough good replicas to write."),
        answer("MISCONF Redis is configured to save RDB snapshots"),
        answer("BUSY Redis is busy running a script."),
        answer("Error running script: -OOM command not allowed when"),
        pika.exceptions.NackError([]),
        pika.exceptions.AMQPConnectionError(),
        pika.exceptions.ConnectionClosedByBroker(320, "closing"),
        pika.exceptions.ChannelClosedByBroker(405, "locked"),
        *made(aiormq.exceptions, "AMQPConnectionError", "ChannelLockedResource"),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("hung up"),
        *made(requests, "ConnectionError", "ReadTimeout"),
        *made(aiohttp, "ServerDisconnectedError", "ClientPayloadError"),
        urllib3.exceptions.ProtocolError(),
    ],
    UNKNOWN: [
        RuntimeError("connection is closed"),
        OSError(errno.ENOSPC, "disk full"),
        FileNotFoundError(errno.ENOENT, "gone"),
        psycopg.InterfaceError("misused"),
        bulk(),
        failure(99999),
        answer("BUSYGROUP exists already"),
        answer("what"),
        requests.HTTPError("made by hand"),
        urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
    ],
    CONFLICT: [
        sqlite3.OperationalError("database is locked"),
        failure(112),
        bulk(112),
        labelled("TransientTransactionError", 24),
        redis.exceptions.WatchError(),
        redis.exceptions.TryAgainError("during rehashing"),
    ],
    TAKEN: [pymongo.errors.DuplicateKeyError("E11000", 11000), bulk(11000)],
    (T, "QUERY_CANCELLED"): [pymongo.errors.ExecutionTimeout("too slow", 50)],
    FULL: [failure(14031)],
    LOGIN: [
        failure(18),
        *made(redis.exceptions, "AuthenticationError", "AuthorizationError"),
        *made(pika.exceptions, "ProbableAuthenticationError", "ProbableAccessDeniedError"),
        aiormq.exceptions.AuthenticationError(),
    ],
    REFUSED: [
        pika.exceptions.UnroutableError([]),
        pika.exceptions.ChannelClosedByBroker(404, "no queue"),
        pika.exceptions.ChannelClosedByBroker(406, "other type"),
        *made(aiormq.exceptions, "ChannelNotFoundEntity", "ChannelPreconditionFailed"),
    ],
}


@pytest.mark.parametrize(
    ("expected", "error"),
    [(expected, error) for expected, errors in ERRORS.items() for error in errors],
    ids=repr,
)
def test_an_error_of_a_library_has_its_verdict(
    expected: tuple[Verdict, str], error: BaseException
) -> None:
    assert verdict(error) == expected


SQLSTATES = {
    CONFLICT: "40001 40P01 55P03",
    LOST: "08000 08003 08006 57P01 57P02 57P03 25P03",
    (U, "CONNECTION_ERROR"): "08007 40003",
    TAKEN: "23505",
    (P, "INTEGRITY_ERROR"): "23503 23502 22001",
    MISUSED: "42601 42P01 0A000 25P02",
    FULL: "53300 53100",
    LOGIN: "28000 28P01",
    (T, "QUERY_CANCELLED"): "57014",
    UNKNOWN: "P0001",
}


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [(each, expected) for expected, codes in SQLSTATES.items() for each in codes.split()],
)
def test_postgresql_errors_are_known_by_their_sqlstate(
    sqlstate: str, expected: tuple[Verdict, str]
) -> None:
    for error in (
        asyncpg.PostgresError.new({"C": sqlstate, "M": "said the server"}),
        psycopg.errors.lookup(sqlstate)("said the server"),
    ):
        assert error.sqlstate == sqlstate
        assert verdict(error) == expected
        assert DEFAULT_CLASSIFIER.classify(error).code == sqlstate


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "events.db"
    with closing(connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table t (id integer primary key, name text unique not null)")
        connection.execute("insert into t values (1, 'one')")
    return path


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None)


@pytest.fixture
def connection(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(file)) as opened:
        yield opened


def refused(connection: sqlite3.Connection, statement: str) -> sqlite3.Error:
    with pytest.raises(sqlite3.Error) as raised:
        connection.execute(statement)
    return raised.value


@pytest.mark.parametrize("name", ["SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT"])
def test_a_busy_sqlite_file_is_a_conflict(
    file: Path, connection: sqlite3.Connection, name: str
) -> None:
    with closing(connect(file)) as other:
        if name == "SQLITE_BUSY":
            other.execute("begin immediate")
        else:
            connection.execute("begin")
            connection.execute("select * from t").fetchall()
            other.execute("update t set name = 'other'")
        error = refused(connection, "update t set name = 'mine'")
    assert error.sqlite_errorname == DEFAULT_CLASSIFIER.classify(error).code == name
    assert verdict(error) == CONFLICT


STATEMENTS = [
    ("insert into t values (2, 'one')", "SQLITE_CONSTRAINT_UNIQUE", TAKEN),
    ("insert into t values (1, 'x')", "SQLITE_CONSTRAINT_PRIMARYKEY", TAKEN),
    ("insert into t values (2, null)", "SQLITE_CONSTRAINT_NOTNULL", (P, "INTEGRITY_ERROR")),
    ("insert into t values ('a', 'x')", "SQLITE_MISMATCH", (P, "INTEGRITY_ERROR")),
    ("select * from nothing", "SQLITE_ERROR", MISUSED),
    ("select", "SQLITE_ERROR", MISUSED),
]


@pytest.mark.parametrize(("statement", "name", "expected"), STATEMENTS)
def test_statements_that_sqlite_refuses_are_permanent(
    connection: sqlite3.Connection, statement: str, name: str, expected: tuple[Verdict, str]
) -> None:
    error = refused(connection, statement)
    assert error.sqlite_errorname == name
    assert verdict(error) == expected
    connection.close()
    assert verdict(refused(connection, "select 1")) == MISUSED


def through_sqlalchemy(file: Path, statement: str) -> sqlalchemy.exc.DBAPIError:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", connect_args={"timeout": 0})
    try:
        with engine.connect() as connection, pytest.raises(sqlalchemy.exc.DBAPIError) as raised:
            connection.execute(sqlalchemy.text(statement))
    finally:
        engine.dispose()
    return raised.value


def test_what_sqlalchemy_wraps_is_seen_through(file: Path) -> None:
    with closing(connect(file)) as other:
        for statement, expected in (
            ("insert into t values (1, 'x')", TAKEN),
            ("select * from nothing", MISUSED),
            ("insert into t values (3, 'three')", CONFLICT),
        ):
            if expected is CONFLICT:
                other.execute("begin immediate")
            error = through_sqlalchemy(file, statement)
            assert verdict(error) == expected
            assert DEFAULT_CLASSIFIER.classify(error).found is error.orig


def test_a_connection_that_sqlalchemy_has_given_up_is_lost() -> None:
    odd = RuntimeError("odd")
    wrapped = sqlalchemy.exc.DBAPIError("select 1", None, odd)
    assert verdict(wrapped) == UNKNOWN
    assert TRANSACTION_CLASSIFIER.classify(wrapped).verdict is P
    invalid = sqlalchemy.exc.DBAPIError("select 1", None, odd, connection_invalidated=True)
    assert verdict(invalid) == LOST


def by_httpx(status: int, headers: dict[str, str]) -> Exception:
    request = httpx.Request("GET", "http://localhost/")
    with pytest.raises(httpx.HTTPStatusError) as raised:
        httpx.Response(status, headers=headers, request=request).raise_for_status()
    return raised.value


def by_requests(status: int, headers: dict[str, str]) -> Exception:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers)
    with pytest.raises(requests.HTTPError) as raised:
        response.raise_for_status()
    return raised.value


def by_aiohttp(status: int, headers: dict[str, str]) -> Exception:
    asked = multidict.CIMultiDictProxy(multidict.CIMultiDict[str]())
    url = yarl.URL("http://localhost/")
    request = aiohttp.RequestInfo(url, "GET", asked, url)
    return aiohttp.ClientResponseError(
        request, (), status=status, headers=multidict.CIMultiDict(headers)
    )


def by_urllib(status: int, headers: dict[str, str]) -> Exception:
    message = email.message.Message()
    for name, value in headers.items():
        message[name] = value
    return urllib.error.HTTPError("http://localhost/", status, "said", message, None)


clients = pytest.mark.parametrize("answer", [by_httpx, by_requests, by_aiohttp, by_urllib])


@clients
def test_the_status_of_an_answer_is_its_verdict_and_it_may_say_when_to_come_back(
    answer: Any,
) -> None:
    for status in (408, 425, 429, 500, 502, 503, 504):
        found = DEFAULT_CLASSIFIER.classify(answer(status, {}))
        assert (found.verdict, found.error_type) == (T, "HTTP_UNAVAILABLE")
        assert (found.code, found.retry_after) == (str(status), None)
    for status in (400, 401, 403, 404, 409, 410, 422):
        assert verdict(answer(status, {"Retry-After": "5"})) == (P, "HTTP_REFUSED")
    for asked, expected in (
        ("17", timedelta(seconds=17)),
        ("Wed, 21 Oct 2015 07:28:00 GMT", datetime(2015, 10, 21, 7, 28, tzinfo=UTC)),
    ):
        found = DEFAULT_CLASSIFIER.classify(answer(429, {"Retry-After": asked}))
        assert found.retry_after == expected
