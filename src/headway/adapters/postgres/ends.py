"""How operations ended, as records tell it."""

# ruff: noqa: S608 (statements are put together from parts of our own; values are bound)

from collections.abc import Mapping, Sequence

from headway.adapters.postgres.link import Link
from headway.adapters.postgres.values import kept, unkept
from headway.ports.places import Undecided

# Once for each operation in a queue: what was sent again on purpose is where its last end is.
_ENDS = """
select d.queue, d.operation, d.ended from headway_done d
where d.ended not in ('failed', 'requeued')
  and not exists (
    select 1 from headway_done e
    where e.generation <> '0' and e.operation = d.operation and e.queue = d.queue
      and e.id > d.id and e.ended not in ('failed', 'requeued')
  )
"""
_COUNT = f"""
select (select done from headway_forgotten) + count(*),
       (select purged from headway_forgotten) + count(*) filter (where ended = 'purged')
from ({_ENDS}) as ends
"""
_WHERE = f"""
select operation, 'done in ' || queue from ({_ENDS}) as ends where operation = any($1::text[])
union all
select operation, 'failed in ' || failed_queue from headway_done
where (outgoing is not null or unwritten is not null) and ended = 'failed'
  and operation = any($1::text[])
"""
_UNDECIDED = """
select d.operation, d.queue, d.letter, d.failed_queue from headway_done d
where d.letter is not null and d.ended = 'failed' and d.outgoing is null and d.unwritten is null
  and not exists (
    select 1 from headway_done e
    where e.generation <> '0' and e.operation = d.operation and e.queue = d.queue and e.id > d.id
  )
order by d.id limit $1
"""
_PING = "select 1 from headway_forgotten"
_AT_ONCE = 50_000


class PostgresEnds:
    """Reads records.

    A letter that its record still holds is as good as written: somebody will send it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    async def ping(self) -> None:
        await self._link.fetch(_PING)

    async def count(self) -> tuple[int, int]:
        (row,) = await self._link.fetch(_COUNT)
        return row[0], row[1]

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        places: dict[str, list[str]] = {}
        different = [kept(operation) for operation in dict.fromkeys(operations)]
        for start in range(0, len(different), _AT_ONCE):
            wanted = different[start : start + _AT_ONCE]
            for operation, place in await self._link.fetch(_WHERE, wanted):
                places.setdefault(unkept(operation), []).append(unkept(place))
        return places

    async def undecided(self, limit: int) -> Sequence[Undecided]:
        return [
            Undecided(
                operation=unkept(operation),
                queue=unkept(queue),
                letter_id=letter,
                failed_queue=unkept(failed_queue),
            )
            for operation, queue, letter, failed_queue in await self._link.fetch(_UNDECIDED, limit)
        ]
