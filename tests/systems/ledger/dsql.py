"""Make PostgreSQL answer COMMIT as Aurora DSQL does when a transaction lost against another.

A deferred constraint trigger runs at COMMIT. It counts with a sequence, because that is the one
thing a rollback does not take back.
"""

import asyncpg

SHAPES = {
    "40001 with OC000": (
        "40001",
        "change conflicts with another transaction, please retry: (OC000)",
    ),
    "OC000 as the code": ("OC000", "change conflicts with another transaction, please retry"),
    "40001 with OC001": (
        "40001",
        "schema has been updated by another transaction, please retry: (OC001)",
    ),
}

_TRIGGER = """
create sequence commits;
create table conflict_at_commit (times bigint, code text, message text);
create function raise_as_dsql() returns trigger language plpgsql as $$
declare wanted conflict_at_commit;
begin
    select * into wanted from conflict_at_commit;
    if nextval('commits') <= wanted.times then
        raise exception using errcode = wanted.code, message = wanted.message;
    end if;
    return null;
end $$;
create constraint trigger dsql after insert on ledger_events
    deferrable initially deferred for each row execute function raise_as_dsql();
"""


async def raise_at_commit(url: str, shape: str, times: int) -> None:
    """Let the first `times` commits of an event fail in one of the shapes."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_TRIGGER)
        await connection.execute(
            "insert into conflict_at_commit values ($1, $2, $3)", times, *SHAPES[shape]
        )
    finally:
        await connection.close()


async def commits_tried(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("select last_value from commits"))
    finally:
        await connection.close()
