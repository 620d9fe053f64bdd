"""`Resequencer`, bound to the real clock, chance and log, on the engine that is meant."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from headway.adapters.logs.sequences import SequenceLog
from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.assembly.sequencing import open_sequences
from headway.core.errors import ConfigurationError
from headway.core.sequence_answers import Turn
from headway.core.sequence_fates import Disposition, Result
from headway.core.sequence_settings import DEFAULT_NAME, SequenceSettings
from headway.core.showing import shown
from headway.ports.resequencing import LookScheduler, SequenceWatcher
from headway.runtime import resequencer
from headway.runtime.sequence_applying import in_thread, one_by_one

Apply = Callable[[Turn], Awaitable[None] | None]


class Resequencer:
    """Applies the results of each key in their order, whatever the order in which they come.

    Use it as `async with Resequencer(apply) as order: await order.offer("sensor-7", 42, b"...")`.
    While the block lasts it also looks at keys that wait: a gap is given up after a while, and what
    a dead worker held is taken over. Workers on the same engine and with the same name share keys.

    Args:
        apply: Called with the work: its `key`, `position` and `payload`; `gap`, the positions that
            are given up before it; `late`, if its own position was. A coroutine, or a function that
            is run in a thread. What it raises is tried again later; the rest of the key waits.
        url: sqlite:///FILE or redis://...; what HEADWAY_SEQUENCES names if not given.
        name: Keys of one name know nothing of those of another.
        settings: How long is waited, and what becomes of a gap.
        watcher: Hears what happened besides the log.
        scheduler: Has keys looked at later, instead of this process.
        progress: Says until when all that reached the source has been offered; None: until now.
        patience: How long an engine that is away is waited for.
        look_every: How often waiting keys are looked at.
    """

    def __init__(
        self,
        apply: Apply,
        *,
        url: str | None = None,
        name: str = DEFAULT_NAME,
        settings: SequenceSettings | None = None,
        watcher: SequenceWatcher | None = None,
        scheduler: LookScheduler | None = None,
        progress: resequencer.Progress | None = None,
        patience: timedelta = resequencer.PATIENCE,
        look_every: timedelta = resequencer.LOOK_EVERY,
    ) -> None:
        self._runs = resequencer.BatchResequencer(
            open_sequences(url, family=name, settings=settings),
            one_by_one(_awaited(apply)),
            clock=CLOCK,
            chance=CHANCE,
            watchers=[SequenceLog(), *([watcher] if watcher else [])],
            scheduler=scheduler,
            progress=progress,
            patience=patience,
            together=False,
        )
        self._name = name
        self._look_every = look_every
        self._looking: asyncio.Task[None] | None = None

    async def offer(
        self,
        key: str,
        position: int,
        payload: bytes = b"",
        *,
        step: int = 1,
        begins: int = 0,
        applied: int | None = None,
        caught_up: datetime | None = None,
    ) -> Disposition:
        """Take one result; say what became of it. But for LEFT, the source may forget it.

        Args:
            key: Whose result it is.
            position: Its place in the order: a number, or a time.
            payload: What is given to `apply`, now or when its turn comes.
            step: How far positions are apart.
            begins: Where this numbering begins: nothing below is ever missed.
            applied: The last position that the caller's own store has, if it knows.
            caught_up: Until when the source was read, if this worker is behind it.

        Raises:
            ConfigurationError: It is not inside the `async with` block.
            ValueError: One of these is not what it has to be; nothing was done with the result.
            SequencesAwayError: The engine was away for longer than `patience`; the source has to
                keep the result. From headway.runtime.sequence_reach.
        """
        self._refuse_outside()
        result = Result(key, position, payload, step, begins, applied, caught_up)
        return (await self._runs.offer([result]))[0]

    async def offer_all(self, results: list[Result]) -> list[Disposition]:
        """Take many results with few calls of the engine; say for each what became of it."""
        self._refuse_outside()
        return await self._runs.offer(results)

    async def look(self, key: str) -> timedelta | None:
        """Look at one key, as a scheduled task does; say when to look again, if at all."""
        return await self._runs.look(key)

    async def close(self) -> None:
        if self._looking is not None:
            self._runs.stop()
            await self._looking
            self._looking = None
        await self._runs.close()

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._runs.run(self._look_every))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _refuse_outside(self) -> None:
        if self._looking is None:  # nobody would ever look at what is held
            raise ConfigurationError(
                f"the resequencer {shown(self._name)!r} is not running, so nothing is offered to "
                "it: use it as `async with Resequencer(...) as order`, and offer inside the block"
            )


def _awaited(apply: Apply) -> Callable[[Turn], Awaitable[None]]:
    return apply if inspect.iscoroutinefunction(apply) else in_thread(apply)
