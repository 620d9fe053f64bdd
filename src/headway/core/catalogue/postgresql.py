"""PostgreSQL and Aurora DSQL: SQLSTATEs first, the words of DSQL last."""

from headway.core.classify import SQLSTATE, Rule
from headway.core.failure import Verdict

_PSYCOPG = frozenset({"psycopg.OperationalError", "psycopg2.OperationalError"})
_NO_CODE = frozenset({None})

RULES = (
    # DSQL documents SQLSTATE 40001 with OC000 (data) or OC001 (schema) in the message; some of its
    # clients report the short code as the SQLSTATE itself.
    Rule(
        name="postgresql.conflict",
        verdict=Verdict.TRANSIENT,
        error_type="OC000_TRANSACTION_CONFLICT",
        at=SQLSTATE,
        codes=frozenset({"40001", "40P01", "55P03", "OC000", "OC001"}),
        detail=r"\bOC\d{3}\b",
    ),
    Rule(
        name="postgresql.outcome_unknown",
        verdict=Verdict.UNKNOWN_OUTCOME,
        error_type="CONNECTION_ERROR",
        at=SQLSTATE,
        codes=frozenset({"08007", "40003"}),
    ),
    Rule(
        name="postgresql.connection",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        at=SQLSTATE,
        classes=("08",),
        # Shutdown by an administrator, by a crash, start-up, and sessions ended for idling.
        codes=frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"}),
    ),
    Rule(
        name="postgresql.unique",
        verdict=Verdict.PERMANENT,
        error_type="UNIQUE_VIOLATION",
        at=SQLSTATE,
        codes=frozenset({"23505"}),
    ),
    Rule(
        name="postgresql.integrity",
        verdict=Verdict.PERMANENT,
        error_type="INTEGRITY_ERROR",
        at=SQLSTATE,
        classes=("23", "22"),
    ),
    # Before the class that it is in: nothing is wrong with the statement.
    Rule(
        name="postgresql.permission",
        verdict=Verdict.PERMANENT,
        error_type="PERMISSION_DENIED",
        at=SQLSTATE,
        codes=frozenset({"42501"}),
    ),
    Rule(
        name="postgresql.programming",
        verdict=Verdict.PERMANENT,
        error_type="PROGRAMMING_ERROR",
        at=SQLSTATE,
        classes=("42", "0A", "25P02"),
    ),
    # Too many connections, out of memory, disk full: it passes, but calling again at once makes it
    # worse, so it is no connection error.
    Rule(
        name="postgresql.resources",
        verdict=Verdict.TRANSIENT,
        error_type="RESOURCES_EXHAUSTED",
        at=SQLSTATE,
        classes=("53",),
    ),
    # A standby, or a primary that was told to take no writes.
    Rule(
        name="postgresql.read_only",
        verdict=Verdict.TRANSIENT,
        error_type="READ_ONLY",
        at=SQLSTATE,
        codes=frozenset({"25006"}),
    ),
    # Errors of the server's files, and of its own configuration.
    Rule(
        name="postgresql.storage",
        verdict=Verdict.TRANSIENT,
        error_type="STORAGE_ERROR",
        at=SQLSTATE,
        classes=("58", "F0"),
    ),
    Rule(
        name="postgresql.credentials",
        verdict=Verdict.PERMANENT,
        error_type="CREDENTIALS_REFUSED",
        at=SQLSTATE,
        classes=("28",),
    ),
    Rule(
        name="postgresql.cancelled",
        verdict=Verdict.TRANSIENT,
        error_type="QUERY_CANCELLED",
        at=SQLSTATE,
        codes=frozenset({"57014"}),
    ),
    Rule(
        name="sqlalchemy.connection_invalidated",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset({"sqlalchemy.exc.DBAPIError"}),
        at=("connection_invalidated",),
        codes=frozenset({True}),
    ),
    Rule(
        name="sqlalchemy.pool_timeout",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset({"sqlalchemy.exc.TimeoutError"}),
    ),
    # psycopg does not pass on the code of a server that refuses a connection, only its words.
    Rule(
        name="postgresql.resources_by_text",
        verdict=Verdict.TRANSIENT,
        error_type="RESOURCES_EXHAUSTED",
        types=_PSYCOPG,
        at=SQLSTATE,
        codes=_NO_CODE,
        text=(
            "too many clients already",
            "too many connections for",
            "remaining connection slots are reserved",
        ),
    ),
    Rule(
        name="postgresql.credentials_by_text",
        verdict=Verdict.PERMANENT,
        error_type="CREDENTIALS_REFUSED",
        types=_PSYCOPG,
        at=SQLSTATE,
        codes=_NO_CODE,
        text=("password authentication failed", "no pg_hba.conf entry", 'fatal:  role "'),
    ),
    # The client library lost the connection itself, so that no server gave it a code. The empty
    # text is in every message; it puts this rule behind those that look for words.
    Rule(
        name="postgresql.driver_connection",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=_PSYCOPG,
        at=SQLSTATE,
        codes=_NO_CODE,
        text=("",),
    ),
    # asyncpg's own words for a connection that broke between two of its steps.
    Rule(
        name="postgresql.broken_off",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset({"asyncpg.exceptions._base.InternalClientError"}),
        text=("cannot switch to state",),
    ),
    Rule(
        name="postgresql.closed",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset({"asyncpg.exceptions._base.InterfaceError"}),
        text=("connection is closed", "connection was closed", "connection has been released"),
    ),
    Rule(
        name="dsql.conflict_by_text",
        verdict=Verdict.TRANSIENT,
        error_type="OC000_TRANSACTION_CONFLICT",
        text=(
            "oc000",
            "oc001",
            "conflicts with another transaction",
            "mutation conflicts",
            "transaction conflict",
            "change conflicts",
            "schema has been updated by another transaction",
        ),
        detail=r"\bOC\d{3}\b",
    ),
)

OF_ENGINES = (
    # A standby does not even begin a transaction that may write, and calls that not supported.
    Rule(
        name="postgresql.recovery",
        verdict=Verdict.TRANSIENT,
        error_type="READ_ONLY",
        at=SQLSTATE,
        codes=frozenset({"0A000"}),
        text=("during recovery",),
    ),
    # A database, schema, table, column or function that is gone; it may be made anew just now.
    Rule(
        name="postgresql.schema",
        verdict=Verdict.PERMANENT,
        error_type="SCHEMA_MISSING",
        at=SQLSTATE,
        codes=frozenset({"3D000", "3F000", "42P01", "42703", "42883"}),
    ),
)
"""Of calls to an engine only: our statements are right, so what they name is gone."""
