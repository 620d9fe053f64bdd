"""The operation table and the statements that all PostgreSQL drivers share."""

OPERATIONS_TABLE = """
create table if not exists headway_operations (
    operation_id text primary key,
    token text not null,
    stored_at timestamptz not null default now()
)
"""

MADE_MEANWHILE = {"23505", "42P07"}
"""`if not exists` does not keep two sessions from making the same table at the same moment."""

CLAIM = """
insert into headway_operations (operation_id, token) values ({0}, {1})
on conflict (operation_id) do nothing returning token
"""

HOLDER = "select token from headway_operations where operation_id = {0}"

# A session whose COMMIT got lost on the way may sit in its transaction for hours, holding the row
# we need. Only a session of our own user and database that is inside a transaction is ended; the
# server waits until it is gone, and says so.
END_SESSION = """
select coalesce(bool_and(pg_terminate_backend(pid, 5000)), true) from pg_stat_activity
where pid = {0} and usename = current_user and datname = current_database()
and backend_type = 'client backend' and xact_start is not null
"""

CANNOT_END_SESSIONS = {"0A000", "42501", "42703", "42883", "42P01"}
"""Servers that know no such function, or do not let us: there, waiting for the row is the fence."""

ISOLATION_LEVELS = {
    "read_committed": "READ COMMITTED",
    "repeatable_read": "REPEATABLE READ",
    "serializable": "SERIALIZABLE",
}
