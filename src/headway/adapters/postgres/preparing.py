"""Make the indexes of views, while others go on writing.

One process at a time makes them. Whoever waits asks again and again, in transactions that end: a
statement that waited inside the server would be waited for by the very index it waits for.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

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


async def prepare(link: Link, clock: Clock, lifecycles: Sequence[Lifecycle]) -> None:
    """Make what is missing; safe to repeat, and for many at once."""
    wanted = {index.name: index for each in lifecycles for index in indexes(each)}
    while wanted and await _unfinished(link, wanted):
        made = await link.run(lambda connection: _make(connection, link, wanted))
        if not made:
            await clock.wait(_PAUSE)


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
        if begun:  # by somebody who died over it
            await link.outside(wanted[name].dropped, _LONGEST_SECONDS)
        await link.outside(wanted[name].made, _LONGEST_SECONDS)
    return True
