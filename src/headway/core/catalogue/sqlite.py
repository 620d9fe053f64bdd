"""SQLite: busy, locked and stale snapshots are conflicts between transactions."""

from headway.core.classify import Rule
from headway.core.failure import Verdict

_ERRORS = frozenset({"sqlite3.Error"})

RULES = (
    Rule(
        name="sqlite.busy",
        verdict=Verdict.TRANSIENT,
        error_type="OC000_TRANSACTION_CONFLICT",
        types=_ERRORS,
        at=("sqlite_errorname",),
        # SQLITE_BUSY_SNAPSHOT is the true conflict: what was read has been overwritten since.
        classes=("SQLITE_BUSY", "SQLITE_LOCKED"),
    ),
    Rule(
        name="sqlite.resources",
        verdict=Verdict.TRANSIENT,
        error_type="RESOURCES_EXHAUSTED",
        types=_ERRORS,
        at=("sqlite_errorname",),
        codes=frozenset({"SQLITE_FULL", "SQLITE_NOMEM"}),
    ),
    Rule(
        name="sqlite.read_only",
        verdict=Verdict.PERMANENT,
        error_type="READ_ONLY",
        types=_ERRORS,
        at=("sqlite_errorname",),
        classes=("SQLITE_READONLY",),
    ),
    Rule(
        name="sqlite.permission",
        verdict=Verdict.PERMANENT,
        error_type="PERMISSION_DENIED",
        types=_ERRORS,
        at=("sqlite_errorname",),
        codes=frozenset({"SQLITE_PERM", "SQLITE_AUTH"}),
    ),
    Rule(
        name="sqlite.file",
        verdict=Verdict.TRANSIENT,
        error_type="STORAGE_ERROR",
        types=_ERRORS,
        at=("sqlite_errorname",),
        classes=("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PROTOCOL", "SQLITE_NOLFS"),
    ),
    Rule(
        name="sqlite.damaged",
        verdict=Verdict.PERMANENT,
        error_type="STORAGE_ERROR",
        types=_ERRORS,
        at=("sqlite_errorname",),
        classes=("SQLITE_CORRUPT", "SQLITE_NOTADB"),
    ),
    Rule(
        name="sqlite.unique",
        verdict=Verdict.PERMANENT,
        error_type="UNIQUE_VIOLATION",
        types=_ERRORS,
        at=("sqlite_errorname",),
        codes=frozenset(
            {"SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID"}
        ),
    ),
    Rule(
        name="sqlite.integrity",
        verdict=Verdict.PERMANENT,
        error_type="INTEGRITY_ERROR",
        types=frozenset({"sqlite3.IntegrityError", "sqlite3.DataError"}),
    ),
    Rule(
        name="sqlite.programming",
        verdict=Verdict.PERMANENT,
        error_type="PROGRAMMING_ERROR",
        types=frozenset({"sqlite3.ProgrammingError", "sqlite3.NotSupportedError"}),
    ),
    Rule(
        name="sqlite.statement",
        verdict=Verdict.PERMANENT,
        error_type="PROGRAMMING_ERROR",
        types=_ERRORS,
        at=("sqlite_errorname",),
        codes=frozenset({"SQLITE_ERROR"}),
    ),
    Rule(
        name="sqlite.busy_by_text",
        verdict=Verdict.TRANSIENT,
        error_type="OC000_TRANSACTION_CONFLICT",
        types=frozenset({"sqlite3.OperationalError", "sqlalchemy.exc.OperationalError"}),
        text=("database is locked", "database table is locked", "database is busy"),
    ),
)

OF_ENGINES = (
    Rule(
        name="sqlite.schema",
        verdict=Verdict.PERMANENT,
        error_type="SCHEMA_MISSING",
        types=frozenset({"sqlite3.OperationalError"}),
        text=("no such table: headway_", "no such column: headway_"),
    ),
)
"""Of calls to an engine only: our statements are right, so what they name is gone."""
