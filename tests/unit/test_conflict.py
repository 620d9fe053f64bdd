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

CONFLICT, LOST = "OC000_TRANSACTION_CONFLICT", "CONNECTION_ERROR"
SAID_BY_DSQL = {
    "change conflicts with another transaction, please retry: (OC000)": "OC000",
    "mutation conflicts with another transaction, retry as needed (OC000)": "OC000",
    "schema has been updated by another transaction, please retry: (OC001)": "OC001",
    "Mutation Conflicts with something": None,
    "transaction conflict": None,
    "change conflicts": None,
    "something CONFLICTS WITH ANOTHER TRANSACTION": None,
    "schema has been updated by another transaction": None,
    "error oc000": "OC000",
    "error oc001": "OC001",
}


def from_server(sqlstate: str, message: str = "said the server") -> Exception:
    error: Exception = asyncpg.PostgresError.new({"C": sqlstate, "M": message})
    return error


@pytest.mark.parametrize(("message", "detail"), SAID_BY_DSQL.items())
def test_a_conflict_is_recognised_by_what_dsql_says(message: str, detail: str | None) -> None:
    for error in (RuntimeError(message), psycopg.DatabaseError(message)):
        assert classify_dsql_error(error) == (True, CONFLICT, None)
        assert is_oc000_error(error)
        assert TRANSACTION_CLASSIFIER.classify(error).detail == detail
    found = TRANSACTION_CLASSIFIER.classify(from_server("40001", message))
    assert (found.code, found.detail) == ("40001", detail)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        *((from_server(code), (True, CONFLICT, code)) for code in ("40001", "OC000", "OC001")),
        (from_server("40P01"), (True, CONFLICT, "40P01")),
        (sqlalchemy.exc.DBAPIError("", None, from_server("40001")), (True, CONFLICT, "40001")),
        (DuplicateEventError("e-1"), (False, "DUPLICATE_EVENT", None)),
        (from_server("23505"), (False, "UNIQUE_VIOLATION", "23505")),
        (from_server("23505", "transaction conflict"), (False, "UNIQUE_VIOLATION", "23505")),
        (from_server("08006"), (True, LOST, "08006")),
        (from_server("57P01"), (True, LOST, "57P01")),
        (ConnectionResetError(), (True, LOST, None)),
        (TimeoutError(), (True, LOST, None)),
        (OutcomeUnknownError("e-1", 5, "t"), (True, LOST, None)),
        *(
            (from_server(code), (False, "UNKNOWN_ERROR", code))
            for code in ("42P01", "23503", "22001", "57014", "P0001")
        ),
        (DocumentNotFoundError("messages"), (False, "UNKNOWN_ERROR", None)),
        (RuntimeError("odd"), (False, "UNKNOWN_ERROR", None)),
        # The word connection makes no connection error.
        (ValueError("Connection must be provided"), (False, "UNKNOWN_ERROR", None)),
        (RuntimeError("timeout must be positive"), (False, "UNKNOWN_ERROR", None)),
        (from_server("53300", "too many clients already"), (False, "UNKNOWN_ERROR", "53300")),
    ],
    ids=repr,
)
def test_every_error_has_one_of_the_documented_types(
    error: Exception, answer: tuple[bool, str, str | None]
) -> None:
    assert classify_dsql_error(error) == answer
    assert is_oc000_error(error) is (answer[1] == CONFLICT)
