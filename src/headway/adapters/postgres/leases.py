"""Leases by name, as rows. Setting the server's clock ends none of them, and prolongs none."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from headway.adapters.postgres.link import Link, MeanwhileError
from headway.core.lease_watch import LeaseWatch
from headway.ports.clock import Clock

# Ours, or that of a holder whose last renewal we saw, and no other since.
_HOLD = """
insert into headway_leases as there (name, token, until, lasts)
values ($1, $2, headway_now() + $3::interval, $3)
on conflict (name) do update
set token = excluded.token, until = headway_now() + $3::interval, lasts = excluded.lasts,
    renewals = there.renewals + 1
where there.token = excluded.token or (there.token, there.renewals) = ($4, $5)
returning token, renewals
"""
_THERE = "select token, renewals, lasts from headway_leases where name = $1"
_LET_GO = "delete from headway_leases where name = $1 and token = $2"
# None reaches further than it lasts, unless the clock was set back since its last renewal.
_HELD = """
select name from headway_leases
where starts_with(name, $1) and until > headway_now() and until <= headway_now() + lasts
order by name
"""


class PostgresLeases:
    """Of those who want to do the same, one may."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._watch = LeaseWatch()

    async def hold(self, name: str, token: str, lease: timedelta) -> bool:
        async def work(connection: Any) -> bool:
            ours = await connection.fetchrow(_HOLD, name, token, lease, None, None)
            if ours is None:
                there = await connection.fetchrow(_THERE, name)
                if there is None:  # given up just now
                    raise MeanwhileError
                if self._unrenewed(name, there) < there["lasts"]:
                    return False
                seen = there["token"], there["renewals"]
                ours = await connection.fetchrow(_HOLD, name, token, lease, *seen)
            if ours is None:
                return False
            self._unrenewed(name, ours)
            return True

        return await self._link.run(work)

    async def let_go(self, name: str, token: str) -> None:
        self._watch.forget(name)
        await self._link.run(lambda connection: connection.execute(_LET_GO, name, token))

    async def held(self, prefix: str) -> Sequence[str]:
        return [row[0] for row in await self._link.fetch(_HELD, prefix)]

    def _unrenewed(self, name: str, row: Any) -> timedelta:
        renewal = row["token"], row["renewals"]
        return self._watch.unrenewed(name, renewal, self._clock.read().steady)
