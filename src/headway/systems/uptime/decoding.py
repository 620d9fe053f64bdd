"""Results as they come from outside. What is none is kept for a person, and holds up nobody."""

import asyncio
from collections.abc import Sequence

from headway.clock import Clock
from headway.systems.uptime import metrics
from headway.systems.uptime.metrics import Counting
from headway.systems.uptime.results import CheckResult, MalformedResultError, decode
from headway.systems.uptime.store import UptimeStore
from headway.systems.uptime.validation import Drop, latest_ms, refused_by_time


class Decoding:
    """Reads results, and puts aside what cannot be read."""

    def __init__(self, store: UptimeStore, counts: Counting, clock: Clock) -> None:
        self._store = store
        self._counts = counts
        self._clock = clock

    async def from_source(self, raws: Sequence[bytes]) -> dict[int, CheckResult]:
        """Read results that have just come, each under its place among them."""
        latest = latest_ms(self._clock.now())
        results: dict[int, CheckResult] = {}
        wrong: list[tuple[bytes, str]] = []
        for at, raw in enumerate(raws):
            read = _read(raw or b"", latest)  # a message without any value is None in Kafka
            if isinstance(read, str):
                wrong.append((raw or b"", read))
            else:
                results[at] = read
        # Together: a whole topic of garbage would else be a commit for each.
        await asyncio.gather(*(self._put_aside(raw, why) for raw, why in wrong))
        return results

    async def from_backlog(self, payload: bytes) -> CheckResult | None:
        """Read what was held. To try again what nobody can read would hold up its key for ever."""
        read = _read(payload)
        if not isinstance(read, str):
            return read
        await self._put_aside(payload, read)
        return None

    async def _put_aside(self, raw: bytes, why: str) -> None:
        await self._store.reject(raw, why, self._clock.now())
        self._counts.add(metrics.DROPPED, 1, {"reason": Drop.MALFORMED.value})


def _read(raw: bytes, latest: int | None = None) -> CheckResult | str:
    """Read a result, or say what is wrong with it."""
    try:
        result = decode(raw)
    except MalformedResultError as error:
        return str(error)
    return (None if latest is None else refused_by_time(result, latest)) or result
