"""Admit what was taken: read it, recognise what has ended before, and tell suspects apart."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from headway.core.catalogue import EVERYTHING
from headway.core.document import PROCESSED, STATUS
from headway.core.failure import Verdict
from headway.ports.bus import SUSPECT_AFTER, Delivery
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.records import is_same_or_done, key_after
from headway.runtime.attempt import Attempt, Ending
from headway.runtime.recover import Recovery

CONDEMNED_AFTER = 2
"""Begins without an end, alone in its process, that make it a crash loop."""


_LONGEST_CHAIN = 100
"""Of work with one key that failed and was sent anew; nobody corrects an event more often."""


@dataclass(slots=True)
class Admitted:
    """What is to be done with the deliveries of one take."""

    attempts: list[Attempt] = field(default_factory=list)
    suspects: list[Attempt] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)


class Admission:
    """Stands between the bus and the lanes."""

    def __init__(self, recoveries: Mapping[str, Recovery], engine: Engine, clock: Clock) -> None:
        self._recoveries = recoveries
        self._engine = engine
        self._clock = clock

    async def admit(self, taken: Sequence[Delivery]) -> Admitted:
        admitted = Admitted()
        now = self._clock.now()
        read: list[Attempt] = []
        for delivery in taken:
            found = self._recoveries[delivery.queue].read(delivery, now)
            if isinstance(found, Ending):
                admitted.endings.append(found)
            else:
                read.append(found)
        new = await self._new(read, admitted)
        superseded = await self._superseded(new, now)
        for attempt in new:
            if attempt.unfit is not None:
                admitted.endings.append(attempt.recovery.failed(attempt, attempt.unfit, now))
            elif attempt in superseded:
                admitted.endings.append(attempt.recovery.superseded(attempt, now))
            elif attempt.delivery.returns < SUSPECT_AFTER:
                admitted.attempts.append(attempt)
            elif attempt.delivery.begins < CONDEMNED_AFTER:
                admitted.suspects.append(attempt)
            else:
                admitted.endings.append(attempt.recovery.crash_loop(attempt, now))
        return admitted

    async def _new(self, read: Sequence[Attempt], admitted: Admitted) -> Sequence[Attempt]:
        """Part what is new from what has ended before."""
        ended: set[Attempt] = set()
        looked_for = read
        for _ in range(_LONGEST_CHAIN):
            if not looked_for:
                break
            records = await self._engine.records.find([attempt.key for attempt in looked_for])
            if not records:
                break
            again = []
            for attempt in looked_for:
                record = records.get(attempt.key)
                if record is None:
                    continue
                if is_same_or_done(record, attempt.delivery.queue, attempt.travel.operation):
                    ended.add(attempt)
                    admitted.endings.append(attempt.recovery.known(attempt, record))
                else:
                    attempt.key = key_after(attempt.key, record.operation)
                    again.append(attempt)
            looked_for = again
        return [attempt for attempt in read if attempt not in ended] if ended else read

    async def _superseded(self, new: Sequence[Attempt], now: datetime) -> set[Attempt]:
        """Count attempts with their documents; give those whose documents are all processed."""
        about = [attempt for attempt in new if attempt.subscription.documents]
        if not about:
            return set()
        # Side by side, so that the engine can put them into one commit.
        over = await asyncio.gather(*(self._is_over(attempt, now) for attempt in about))
        return {attempt for attempt, is_over in zip(about, over, strict=True) if is_over}

    async def _is_over(self, attempt: Attempt, now: datetime) -> bool:
        documents = attempt.subscription.documents
        assert documents is not None  # noqa: S101 (the caller looked)
        ids = attempt.subscription.ids(attempt.event)
        try:
            found = await self._engine.documents.begin(
                documents[0], ids, attempt.travel.operation, now
            )
        except Exception as error:
            if EVERYTHING.classify(error).verdict is not Verdict.PERMANENT:
                raise  # the engine is away, and everybody waits for it
            attempt.unfit = error
            return False
        attempt.documents = tuple(each for each in ids if each in found)
        return len(attempt.documents) == len(ids) and all(
            found[each].get(STATUS) == PROCESSED for each in ids
        )
