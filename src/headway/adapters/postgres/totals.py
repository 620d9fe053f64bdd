"""Numbers that only rise, a row for each."""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.adapters.postgres.link import Link

_ADD = """
insert into headway_totals as total (family, name, value)
select $1, name, by from unnest($2::text[], $3::double precision[]) as added (name, by)
order by name
on conflict (family, name) do update set value = total.value + excluded.value
"""
_ALL = "select name, value from headway_totals where family = $1 order by name"


class PostgresTotals:
    """Adds up what short-lived processes count."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def add(self, group: str, increments: Mapping[str, float]) -> Mapping[str, float]:
        names, by = list(increments), [float(each) for each in increments.values()]

        async def work(connection: Any) -> Sequence[Any]:
            if names:
                await connection.execute(_ADD, group, names, by)
            rows: Sequence[Any] = await connection.fetch(_ALL, group)
            return rows

        return dict(await self._link.run(work))
