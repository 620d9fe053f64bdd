"""Make the indexes of views, while others go on writing.

One process at a time makes them. Whoever waits asks again and again, in transactions that end: a
statement that waited inside the server would be waited for by the very index it waits for.

To be complete, an index that is made while others write has to wait until every older transaction
is over. Nobody knows how long that takes, so it is given up after a while, with a word about who
was in the way. What there is of the index by then is thrown away by whoever tries next.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from headway.adapters.postgres.link import Link
from headway.adapters.postgres.views import Index, indexes
from headway.core.lifecycle import Lifecycle
from headway.ports.clock import Clock

_LOCK = 7_217_430_911_002
_TRY_LOCK = f"""
set local idle_in_transaction_session_timeout = 0;
select where pg_try_advisory_xact_lock({_LOCK})
"""
_LOCKED = "SELECT 1"
_KNOWN = """
select name, (select indisvalid from pg_index where indexrelid = to_regclass(name))
from unnest($1::text[]) as wanted (name)
"""
_PAUSE = timedelta(milliseconds=200)
_LONGEST_SECONDS = 6 * 3600.0
_PATIENCE_SECONDS = 10
"""With the transactions of others, one by one."""
_OLDER = """
select pid, coalesce(nullif(application_name, ''), usename, '?'), xact_start
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
  and (backend_xmin is not null or backend_xid is not null)
order by xact_start limit 3
"""


class _WaitedError(Exception):
    """An index waited too long for others; its name."""


async def prepare(link: Link, clock: Clock, lifecycles: Sequence[Lifecycle]) -> None:
    """Make what is missing; safe to repeat, and for many at once.

    Raises:
        TimeoutError: Somebody else's transaction is in the way, and does not end.
    """
    wanted = {index.name: index for each in lifecycles for index in indexes(each)}
    while wanted and await _unfinished(link, wanted):
        try:
            made = await link.run(lambda connection: _make(connection, link, wanted))
        except _WaitedError as error:
            collections = ", ".join(each.collection for each in lifecycles)
            raise TimeoutError(
                f"the index {error} for the sweep of {collections} could not be made: for "
                f"{_PATIENCE_SECONDS} s it waited for {await _those_in_the_way(link)}; the next "
                "sweep tries again. End what does not end by itself with pg_terminate_backend(PID)"
            ) from error
        if not made:
            await clock.wait(_PAUSE)


async def _those_in_the_way(link: Link) -> str:
    rows = await link.fetch(_OLDER)
    named = [f"{pid} ({whose}, open since {since or '?'})" for pid, whose, since in rows]
    return f"older transactions of the processes {', '.join(named)}" if named else "a lock"


async def _unfinished(link: Link, wanted: dict[str, Index]) -> dict[str, bool]:
    """Name the indexes that cannot be used, and whether there is a part of each."""
    rows = await link.fetch(_KNOWN, list(wanted))
    return {name: valid is not None for name, valid in rows if not valid}


async def _make(lock: Any, link: Link, wanted: dict[str, Index]) -> bool:
    """Make the indexes over another connection, if nobody else does."""
    # Said so that nothing of the statement stays open: an index waits for every older snapshot.
    if await lock.execute(_TRY_LOCK) != _LOCKED:
        return False
    for name, begun in (await _unfinished(link, wanted)).items():
        try:
            if begun:  # by somebody who died over it, or did not want to wait
                await link.outside(wanted[name].dropped, _LONGEST_SECONDS, _PATIENCE_SECONDS)
            await link.outside(wanted[name].made, _LONGEST_SECONDS, _PATIENCE_SECONDS)
        except asyncpg.LockNotAvailableError as error:
            raise _WaitedError(name) from error
    return True
