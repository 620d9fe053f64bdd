"""The operation table and the statements that all PostgreSQL drivers share."""

from headway.core.errors import ConfigurationError

OPERATIONS_TABLE = """
create table if not exists headway_operations (
    operation_id text primary key,
    token text not null,
    stored_at timestamptz not null default now()
)
"""

MADE_MEANWHILE = {"23505", "42710", "42P07"}
"""`if not exists` does not keep two sessions from making the same table at the same moment.

Who loses asks again: only then is the table surely there.
"""

CLAIM = """
insert into headway_operations (operation_id, token) values ({0}, {1})
on conflict (operation_id) do nothing returning token
"""

HOLDER = "select token = {1} from headway_operations where operation_id = {0}"

# A session whose connection got lost on the way may sit in its transaction for hours, holding the
# row we need. The server ends it, waits until it is gone, and says so. Behind a pooler pids mean
# nothing, which shows by our own; and what is not surely ours is left alone, and not surely gone.
END_SESSION = """
select case when pg_backend_pid() <> {1} then false else coalesce(
    (select bool_and(case when usename = session_user and datname = current_database()
            then pg_terminate_backend(pid, 5000) else false end)
        from pg_stat_activity where pid = {0}), true) end
"""

CANNOT_END_SESSIONS = {"0A000", "42501", "42703", "42883", "42P01"}
"""Servers that know no such function, or do not let us: there, waiting for the row is the fence."""

ISOLATION_LEVELS = {
    "read_committed": "READ COMMITTED",
    "repeatable_read": "REPEATABLE READ",
    "serializable": "SERIALIZABLE",
}


def check_isolation(isolation: str | None) -> None:
    if isolation is not None and isolation not in ISOLATION_LEVELS:
        raise ConfigurationError(
            f"isolation={isolation!r} is not accepted on PostgreSQL: use "
            f"{', '.join(ISOLATION_LEVELS)}, or None for the database's default"
        )
