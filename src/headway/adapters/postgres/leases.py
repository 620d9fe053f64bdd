"""Leases by name, as rows that tell by the server's clock whether they still run."""

from collections.abc import Sequence
from datetime import timedelta

from headway.adapters.postgres.link import Link

_HOLD = """
insert into headway_leases as there (name, token, until)
values ($1, $2, clock_timestamp() + $3::interval)
on conflict (name) do update set token = excluded.token, until = clock_timestamp() + $3::interval
where there.token = excluded.token or there.until <= clock_timestamp()
returning 1
"""
_LET_GO = "delete from headway_leases where name = $1 and token = $2"
_HELD = """
select name from headway_leases
where starts_with(name, $1) and until > clock_timestamp() order by name
"""


class PostgresLeases:
    """Of those who want to do the same, one may."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def hold(self, name: str, token: str, lease: timedelta) -> bool:
        return bool(
            await self._link.run(lambda connection: connection.fetch(_HOLD, name, token, lease))
        )

    async def let_go(self, name: str, token: str) -> None:
        await self._link.run(lambda connection: connection.execute(_LET_GO, name, token))

    async def held(self, prefix: str) -> Sequence[str]:
        return [row[0] for row in await self._link.fetch(_HELD, prefix)]
