"""The tables against the libraries they speak of: real names, real errors, real attributes."""

import asyncio
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


@pytest.mark.parametrize("package", NOT_INSTALLED)
def test_what_is_excused_is_really_not_here(package: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(package)
    assert any(str(name).startswith(f"{package}.") for rule in DEFAULT_RULES for name in rule.types)


def test_every_rule_has_a_name_of_its_own() -> None:
    names = [rule.name for rule in DEFAULT_RULES]
    assert len(names) == len(set(names))


def test_text_is_written_as_it_is_compared() -> None:
    for rule in DEFAULT_RULES:
        assert all(fragment == fragment.lower() for fragment in rule.text)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DocumentNotFoundError("messages", ["m1"]), (N, "DOCUMENT_NOT_FOUND")),
        (DuplicateEventError("op"), (P, "DUPLICATE_EVENT")),
        (OutcomeUnknownError("op", 3, "t"), (U, "CONNECTION_ERROR")),
        (ConfigurationError("no"), (P, "PROGRAMMING_ERROR")),
        (TransactionRolledBackError(), (P, "PROGRAMMING_ERROR")),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), (T, "CONNECTION_ERROR")),
        (BrokenPipeError(), (T, "CONNECTION_ERROR")),
        (TimeoutError(), (T, "CONNECTION_ERROR")),
        (asyncio.IncompleteReadError(b"", 5), (T, "CONNECTION_ERROR")),
        (socket.gaierror(-3, "try again"), (T, "CONNECTION_ERROR")),
        (OSError(errno.EHOSTUNREACH, "no route"), (T, "CONNECTION_ERROR")),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed"), (T, "CONNECTION_ERROR")),
        (OSError(errno.ENOSPC, "disk full"), (T, "UNKNOWN_ERROR")),
        (FileNotFoundError(errno.ENOENT, "gone"), (T, "UNKNOWN_ERROR")),
        (ssl.SSLCertVerificationError("self-signed"), (P, "CERTIFICATE_ERROR")),
        (ssl.SSLEOFError(), (T, "CONNECTION_ERROR")),
        (json.JSONDecodeError("bad", "{", 0), (P, "VALIDATION_ERROR")),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), (P, "VALIDATION_ERROR")),
        (ValueError("Connection must be provided"), (P, "VALIDATION_ERROR")),
        (TypeError(), (P, "PROGRAMMING_ERROR")),
        (AttributeError(), (P, "PROGRAMMING_ERROR")),
        (KeyError(), (P, "PROGRAMMING_ERROR")),
        (ZeroDivisionError(), (P, "PROGRAMMING_ERROR")),
        (AssertionError(), (P, "PROGRAMMING_ERROR")),
        (RecursionError(), (P, "PROGRAMMING_ERROR")),
        (RuntimeError(), (T, "UNKNOWN_ERROR")),
    ],
    ids=repr,
)
def test_errors_of_python_and_our_own(error: Exception, expected: tuple[Verdict, str]) -> None:
    assert verdict(error) == expected


SQLSTATES = [
    ("40001", (T, "OC000_TRANSACTION_CONFLICT")),
    ("40P01", (T, "OC000_TRANSACTION_CONFLICT")),
    ("55P03", (T, "OC000_TRANSACTION_CONFLICT")),
    ("08000", (T, "CONNECTION_ERROR")),
    ("08003", (T, "CONNECTION_ERROR")),
    ("08006", (T, "CONNECTION_ERROR")),
    ("08007", (U, "CONNECTION_ERROR")),
    ("40003", (U, "CONNECTION_ERROR")),
    ("57P01", (T, "CONNECTION_ERROR")),
    ("57P02", (T, "CONNECTION_ERROR")),
    ("57P03", (T, "CONNECTION_ERROR")),
    ("25P03", (T, "CONNECTION_ERROR")),
    ("23505", (P, "UNIQUE_VIOLATION")),
    ("23503", (P, "INTEGRITY_ERROR")),
    ("23502", (P, "INTEGRITY_ERROR")),
    ("22001", (P, "INTEGRITY_ERROR")),
    ("42601", (P, "PROGRAMMING_ERROR")),
    ("42P01", (P, "PROGRAMMING_ERROR")),
    ("0A000", (P, "PROGRAMMING_ERROR")),
    ("25P02", (P, "PROGRAMMING_ERROR")),
    ("53300", (T, "RESOURCES_EXHAUSTED")),
    ("53100", (T, "RESOURCES_EXHAUSTED")),
    ("28000", (P, "CREDENTIALS_REFUSED")),
    ("28P01", (P, "CREDENTIALS_REFUSED")),
    ("57014", (T, "QUERY_CANCELLED")),
    ("P0001", (T, "UNKNOWN_ERROR")),
]


@pytest.mark.parametrize(("sqlstate", "expected"), SQLSTATES)
def test_postgresql_errors_of_asyncpg(sqlstate: str, expected: tuple[Verdict, str]) -> None:
    error = asyncpg.PostgresError.new({"C": sqlstate, "M": "said the server"})
    assert error.sqlstate == sqlstate
    assert verdict(error) == expected
    assert DEFAULT_CLASSIFIER.classify(error).code == sqlstate


@pytest.mark.parametrize(("sqlstate", "expected"), SQLSTATES)
def test_postgresql_errors_of_psycopg(sqlstate: str, expected: tuple[Verdict, str]) -> None:
    error = psycopg.errors.lookup(sqlstate)("said the server")
    assert error.sqlstate == sqlstate
    assert verdict(error) == expected
    assert DEFAULT_CLASSIFIER.classify(error).code == sqlstate


def test_psycopg_errors_that_no_server_gave_a_code_are_lost_connections() -> None:
    assert verdict(psycopg.OperationalError("consuming input failed")) == (T, "CONNECTION_ERROR")
    assert verdict(psycopg.InterfaceError("misused")) == (T, "UNKNOWN_ERROR")


@pytest.mark.parametrize(
    "message",
    [
        "connection is closed",
        "connection was closed in the middle of operation",
        "cannot call Connection.fetch(): connection has been released back to the pool",
    ],
)
def test_a_closed_asyncpg_connection_is_recognised_by_its_words(message: str) -> None:
    assert verdict(asyncpg.InterfaceError(message)) == (T, "CONNECTION_ERROR")
    assert verdict(RuntimeError(message)) == (T, "UNKNOWN_ERROR")


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


def test_a_busy_sqlite_file_is_a_conflict(file: Path, connection: sqlite3.Connection) -> None:
    with closing(connect(file)) as other:
        other.execute("begin immediate")
        error = refused(connection, "begin immediate")
    assert error.sqlite_errorname == "SQLITE_BUSY"
    assert DEFAULT_CLASSIFIER.classify(error).code == "SQLITE_BUSY"
    assert verdict(error) == (T, "OC000_TRANSACTION_CONFLICT")


def test_a_stale_sqlite_snapshot_is_a_conflict(file: Path, connection: sqlite3.Connection) -> None:
    connection.execute("begin")
    connection.execute("select * from t").fetchall()
    with closing(connect(file)) as other:
        other.execute("update t set name = 'other'")
    error = refused(connection, "update t set name = 'mine'")
    assert error.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
    assert verdict(error) == (T, "OC000_TRANSACTION_CONFLICT")


@pytest.mark.parametrize(
    ("statement", "errorname", "expected"),
    [
        ("insert into t values (2, 'one')", "SQLITE_CONSTRAINT_UNIQUE", (P, "UNIQUE_VIOLATION")),
        ("insert into t values (1, 'x')", "SQLITE_CONSTRAINT_PRIMARYKEY", (P, "UNIQUE_VIOLATION")),
        ("insert into t values (2, null)", "SQLITE_CONSTRAINT_NOTNULL", (P, "INTEGRITY_ERROR")),
        ("insert into t values ('a', 'x')", "SQLITE_MISMATCH", (P, "INTEGRITY_ERROR")),
        ("select * from nothing", "SQLITE_ERROR", (P, "PROGRAMMING_ERROR")),
        ("select", "SQLITE_ERROR", (P, "PROGRAMMING_ERROR")),
    ],
)
def test_statements_that_sqlite_refuses_are_permanent(
    connection: sqlite3.Connection, statement: str, errorname: str, expected: tuple[Verdict, str]
) -> None:
    error = refused(connection, statement)
    assert error.sqlite_errorname == errorname
    assert verdict(error) == expected


def test_a_sqlite_connection_that_is_misused_is_permanent(file: Path) -> None:
    connection = connect(file)
    connection.close()
    error = refused(connection, "select 1")
    assert isinstance(error, sqlite3.ProgrammingError)
    assert verdict(error) == (P, "PROGRAMMING_ERROR")


def test_a_busy_file_is_recognised_by_words_where_the_code_is_lost() -> None:
    assert verdict(sqlite3.OperationalError("database is locked")) == (
        T,
        "OC000_TRANSACTION_CONFLICT",
    )


def through_sqlalchemy(file: Path, statement: str) -> sqlalchemy.exc.DBAPIError:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", connect_args={"timeout": 0})
    try:
        with engine.connect() as connection, pytest.raises(sqlalchemy.exc.DBAPIError) as raised:
            connection.execute(sqlalchemy.text(statement))
    finally:
        engine.dispose()
    return raised.value


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("insert into t values (1, 'x')", (P, "UNIQUE_VIOLATION")),
        ("select * from nothing", (P, "PROGRAMMING_ERROR")),
    ],
)
def test_what_sqlalchemy_really_wraps_is_seen_through(
    file: Path, statement: str, expected: tuple[Verdict, str]
) -> None:
    error = through_sqlalchemy(file, statement)
    assert verdict(error) == expected
    assert DEFAULT_CLASSIFIER.classify(error).found is error.orig


def test_a_busy_file_is_seen_through_sqlalchemy(file: Path) -> None:
    with closing(connect(file)) as other:
        other.execute("begin immediate")
        error = through_sqlalchemy(file, "insert into t values (3, 'three')")
    assert verdict(error) == (T, "OC000_TRANSACTION_CONFLICT")


def wrapped(original: Exception, *, invalidated: bool = False) -> sqlalchemy.exc.DBAPIError:
    return sqlalchemy.exc.DBAPIError("select 1", None, original, connection_invalidated=invalidated)


def test_a_driver_error_inside_a_constructed_sqlalchemy_error_is_seen() -> None:
    conflict = psycopg.errors.SerializationFailure("could not serialize access")
    assert verdict(wrapped(conflict)) == (T, "OC000_TRANSACTION_CONFLICT")
    assert DEFAULT_CLASSIFIER.classify(wrapped(conflict)).found is conflict


def test_a_connection_that_sqlalchemy_has_given_up_is_lost() -> None:
    odd = RuntimeError("odd")
    assert verdict(wrapped(odd)) == (T, "UNKNOWN_ERROR")
    assert verdict(wrapped(odd, invalidated=True)) == (T, "CONNECTION_ERROR")
    assert TRANSACTION_CLASSIFIER.classify(wrapped(odd)).verdict is P
    assert verdict(sqlalchemy.exc.TimeoutError("QueuePool limit")) == (T, "CONNECTION_ERROR")


def bulk(*codes: int) -> pymongo.errors.BulkWriteError:
    return pymongo.errors.BulkWriteError({"writeErrors": [{"code": code} for code in codes]})


def labelled(error: pymongo.errors.PyMongoError, label: str) -> pymongo.errors.PyMongoError:
    error._add_error_label(label)
    assert error.has_error_label(label)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            labelled(
                pymongo.errors.OperationFailure("interrupted", 11602),
                "UnknownTransactionCommitResult",
            ),
            (U, "CONNECTION_ERROR"),
        ),
        (pymongo.errors.OperationFailure("conflict", 112), (T, "OC000_TRANSACTION_CONFLICT")),
        (
            labelled(
                pymongo.errors.OperationFailure("aborted", 24, {}), "TransientTransactionError"
            ),
            (T, "OC000_TRANSACTION_CONFLICT"),
        ),
        (
            labelled(pymongo.errors.AutoReconnect("reset"), "TransientTransactionError"),
            (T, "CONNECTION_ERROR"),
        ),
        (pymongo.errors.DuplicateKeyError("E11000", 11000), (P, "UNIQUE_VIOLATION")),
        (pymongo.errors.AutoReconnect("reset"), (T, "CONNECTION_ERROR")),
        (pymongo.errors.ServerSelectionTimeoutError("none"), (T, "CONNECTION_ERROR")),
        (pymongo.errors.NetworkTimeout("slow"), (T, "CONNECTION_ERROR")),
        (
            labelled(pymongo.errors.OperationFailure("stepping down", 189), "RetryableWriteError"),
            (T, "CONNECTION_ERROR"),
        ),
        (pymongo.errors.OperationFailure("Document failed", 121), (P, "VALIDATION_ERROR")),
        (pymongo.errors.OperationFailure("too large", 10334), (P, "VALIDATION_ERROR")),
        (pymongo.errors.DocumentTooLarge("too large"), (P, "VALIDATION_ERROR")),
        (pymongo.errors.OperationFailure("bad auth", 18), (P, "CREDENTIALS_REFUSED")),
        (pymongo.errors.OperationFailure("not in transactions", 263), (P, "PROGRAMMING_ERROR")),
        (pymongo.errors.OperationFailure("no primary", 10107), (T, "CONNECTION_ERROR")),
        (pymongo.errors.NotPrimaryError("not primary"), (T, "CONNECTION_ERROR")),
        (pymongo.errors.ExecutionTimeout("too slow", 50), (T, "QUERY_CANCELLED")),
        (pymongo.errors.OperationFailure("disk full", 14031), (T, "RESOURCES_EXHAUSTED")),
        (pymongo.errors.InvalidName("no name"), (P, "PROGRAMMING_ERROR")),
        (pymongo.errors.InvalidOperation("closed"), (P, "PROGRAMMING_ERROR")),
        (bulk(11000), (P, "UNIQUE_VIOLATION")),
        (bulk(121), (P, "VALIDATION_ERROR")),
        (bulk(112), (T, "OC000_TRANSACTION_CONFLICT")),
        (bulk(), (T, "UNKNOWN_ERROR")),
        (pymongo.errors.OperationFailure("what", 99999), (T, "UNKNOWN_ERROR")),
    ],
    ids=repr,
)
def test_errors_of_pymongo(error: Exception, expected: tuple[Verdict, str]) -> None:
    assert verdict(error) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (redis.exceptions.WatchError(), (T, "OC000_TRANSACTION_CONFLICT")),
        (redis.exceptions.ConnectionError(), (T, "CONNECTION_ERROR")),
        (redis.exceptions.TimeoutError(), (T, "CONNECTION_ERROR")),
        (redis.exceptions.BusyLoadingError(), (T, "CONNECTION_ERROR")),
        (redis.exceptions.ReadOnlyError(), (T, "CONNECTION_ERROR")),
        (redis.exceptions.AuthenticationError(), (P, "CREDENTIALS_REFUSED")),
        (redis.exceptions.AuthorizationError(), (P, "CREDENTIALS_REFUSED")),
        (redis.exceptions.DataError(), (P, "PROGRAMMING_ERROR")),
        (redis.exceptions.OutOfMemoryError("command not allowed"), (T, "CONNECTION_ERROR")),
        (redis.exceptions.MasterDownError("Link with MASTER is down"), (T, "CONNECTION_ERROR")),
        (redis.exceptions.TryAgainError("during rehashing"), (T, "OC000_TRANSACTION_CONFLICT")),
        (
            redis.exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
            (T, "CONNECTION_ERROR"),
        ),
        (
            redis.exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
            (T, "CONNECTION_ERROR"),
        ),
        (
            redis.exceptions.ResponseError("BUSY Redis is busy running a script."),
            (T, "CONNECTION_ERROR"),
        ),
        (
            redis.exceptions.ResponseError("Error running script: -OOM command not allowed when"),
            (T, "CONNECTION_ERROR"),
        ),
        (redis.exceptions.ResponseError("BUSYGROUP exists already"), (T, "UNKNOWN_ERROR")),
        (redis.exceptions.ResponseError("what"), (T, "UNKNOWN_ERROR")),
    ],
    ids=repr,
)
def test_errors_of_redis(error: Exception, expected: tuple[Verdict, str]) -> None:
    assert verdict(error) == expected


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
@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_an_answer_that_may_change_is_transient(answer: Any, status: int) -> None:
    error = answer(status, {})
    assert verdict(error) == (T, "HTTP_UNAVAILABLE")
    assert DEFAULT_CLASSIFIER.classify(error).code == str(status)
    assert DEFAULT_CLASSIFIER.classify(error).retry_after is None


@clients
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422])
def test_an_answer_that_stays_the_same_is_permanent(answer: Any, status: int) -> None:
    assert verdict(answer(status, {"Retry-After": "5"})) == (P, "HTTP_REFUSED")


@clients
def test_an_answer_says_when_to_come_back(answer: Any) -> None:
    in_seconds = DEFAULT_CLASSIFIER.classify(answer(429, {"Retry-After": "17"}))
    assert in_seconds.retry_after == timedelta(seconds=17)
    by_date = DEFAULT_CLASSIFIER.classify(
        answer(503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    )
    assert by_date.retry_after == datetime(2015, 10, 21, 7, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("hung up"),
        requests.ConnectionError(),
        requests.ReadTimeout(),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientPayloadError(),
        urllib3.exceptions.ProtocolError(),
        urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
    ],
    ids=repr,
)
def test_a_lost_http_connection_is_transient(error: Exception) -> None:
    assert DEFAULT_CLASSIFIER.classify(error).verdict is T


def test_an_http_client_that_is_misused_is_not_an_answer() -> None:
    assert verdict(requests.exceptions.InvalidURL("no host")) == (P, "VALIDATION_ERROR")
    assert verdict(requests.HTTPError("made by hand")) == (T, "UNKNOWN_ERROR")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (pika.exceptions.ProbableAuthenticationError(), (P, "CREDENTIALS_REFUSED")),
        (pika.exceptions.ProbableAccessDeniedError(), (P, "CREDENTIALS_REFUSED")),
        (pika.exceptions.UnroutableError([]), (P, "BROKER_REFUSED")),
        (pika.exceptions.NackError([]), (T, "CONNECTION_ERROR")),
        (pika.exceptions.AMQPConnectionError(), (T, "CONNECTION_ERROR")),
        (pika.exceptions.ConnectionClosedByBroker(320, "closing"), (T, "CONNECTION_ERROR")),
        (pika.exceptions.ChannelClosedByBroker(404, "no queue"), (P, "BROKER_REFUSED")),
        (pika.exceptions.ChannelClosedByBroker(406, "other type"), (P, "BROKER_REFUSED")),
        (pika.exceptions.ChannelClosedByBroker(405, "locked"), (T, "CONNECTION_ERROR")),
        (aiormq.exceptions.AuthenticationError(), (P, "CREDENTIALS_REFUSED")),
        (aiormq.exceptions.ChannelNotFoundEntity(), (P, "BROKER_REFUSED")),
        (aiormq.exceptions.ChannelPreconditionFailed(), (P, "BROKER_REFUSED")),
        (aiormq.exceptions.AMQPConnectionError(), (T, "CONNECTION_ERROR")),
        (aiormq.exceptions.ChannelLockedResource(), (T, "CONNECTION_ERROR")),
    ],
    ids=repr,
)
def test_errors_of_rabbitmq_clients(error: Exception, expected: tuple[Verdict, str]) -> None:
    assert verdict(error) == expected
