"""The two questions about a database error."""

import asyncpg
import psycopg
import pytest
import sqlalchemy.exc

from headway import (
    DocumentNotFoundError,
    DuplicateEventError,
    OutcomeUnknownError,
    classify_dsql_error,
    is_oc000_error,
)
from headway.retrying import TRANSACTION_CLASSIFIER

CONFLICT = "OC000_TRANSACTION_CONFLICT"

SAID_BY_DSQL = [
    ("change conflicts with another transaction, please retry: (OC000)", "OC000"),
    ("mutation conflicts with another transaction, retry as needed (OC000)", "OC000"),
    (
        "schema has been updated by another transaction, please retry: (OC001)",
        "OC001",
    ),
    ("Mutation Conflicts with something", None),
    ("transaction conflict", None),
    ("change conflicts", None),
    ("something CONFLICTS WITH ANOTHER TRANSACTION", None),
    ("schema has been updated by another transaction", None),
    ("error oc000", "OC000"),
    ("error oc001", "OC001"),
]


def from_server(sqlstate: str, message: str = "said the server") -> Exception:
    error: Exception = asyncpg.PostgresError.new({"C": sqlstate, "M": message})
    return error


@pytest.mark.parametrize("sqlstate", ["40001", "OC000", "OC001", "40P01"])
def test_a_conflict_is_recognised_by_its_sqlstate(sqlstate: str) -> None:
    error = from_server(sqlstate)
    assert classify_dsql_error(error) == (True, CONFLICT, sqlstate)
    assert is_oc000_error(error)


@pytest.mark.parametrize(("message", "detail"), SAID_BY_DSQL)
def test_a_conflict_is_recognised_by_what_dsql_says(message: str, detail: str | None) -> None:
    for error in (RuntimeError(message), psycopg.DatabaseError(message)):
        assert classify_dsql_error(error) == (True, CONFLICT, None)
        assert is_oc000_error(error)
        assert TRANSACTION_CLASSIFIER.classify(error).detail == detail


@pytest.mark.parametrize(("message", "detail"), SAID_BY_DSQL)
def test_the_finer_code_is_kept_beside_the_sqlstate(message: str, detail: str | None) -> None:
    found = TRANSACTION_CLASSIFIER.classify(from_server("40001", message))
    assert (found.code, found.detail) == ("40001", detail)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (DuplicateEventError("e-1"), (False, "DUPLICATE_EVENT", None)),
        (from_server("23505"), (False, "UNIQUE_VIOLATION", "23505")),
        (from_server("08006"), (True, "CONNECTION_ERROR", "08006")),
        (from_server("57P01"), (True, "CONNECTION_ERROR", "57P01")),
        (ConnectionResetError(), (True, "CONNECTION_ERROR", None)),
        (TimeoutError(), (True, "CONNECTION_ERROR", None)),
        (OutcomeUnknownError("e-1", 5, "t"), (True, "CONNECTION_ERROR", None)),
        (from_server("42P01"), (False, "UNKNOWN_ERROR", "42P01")),
        (from_server("23503"), (False, "UNKNOWN_ERROR", "23503")),
        (from_server("22001"), (False, "UNKNOWN_ERROR", "22001")),
        (from_server("57014"), (False, "UNKNOWN_ERROR", "57014")),
        (from_server("P0001"), (False, "UNKNOWN_ERROR", "P0001")),
        (DocumentNotFoundError("messages"), (False, "UNKNOWN_ERROR", None)),
        (ValueError("bad"), (False, "UNKNOWN_ERROR", None)),
        (RuntimeError("odd"), (False, "UNKNOWN_ERROR", None)),
    ],
    ids=repr,
)
def test_everything_else_has_one_of_the_documented_types(
    error: Exception, answer: tuple[bool, str, str | None]
) -> None:
    assert classify_dsql_error(error) == answer
    assert not is_oc000_error(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("Connection must be provided"),
        RuntimeError("timeout must be positive"),
        from_server("53300", "sorry, too many clients already"),
    ],
    ids=repr,
)
def test_the_word_connection_does_not_make_a_connection_error(error: Exception) -> None:
    is_retryable, error_type, _ = classify_dsql_error(error)
    assert (is_retryable, error_type) == (False, "UNKNOWN_ERROR")


def test_a_conflict_is_seen_through_what_an_orm_wraps_around_it() -> None:
    conflict = from_server("40001", "change conflicts with another transaction (OC000)")
    error = sqlalchemy.exc.DBAPIError("commit", None, conflict)
    assert classify_dsql_error(error) == (True, CONFLICT, "40001")


def test_a_unique_violation_that_mentions_a_conflict_is_none() -> None:
    error = from_server("23505", "transaction conflict on key events_pkey")
    assert classify_dsql_error(error) == (False, "UNIQUE_VIOLATION", "23505")
