"""`Resequencer`, bound to the real clock, chance and log, on the engine that is meant."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

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

T = TypeVar("T")
Apply = Callable[[Turn], Awaitable[None] | None]


class LoopThread:
    """An event loop in a thread of its own, for programs that have none."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a process that forgot to close can still end.
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait in the calling thread for what a coroutine comes to."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Resequencer:
    """Applies the results of each key in their order, whatever the order in which they come.

    Use it as `async with Resequencer(apply) as order: await order.offer("sensor-7", 42, b"...")`.
    Programs without an event loop use `with Resequencer(apply) as order: order.offer(...)`.
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
                keep the result. From headway.errors.
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

    def __enter__(self) -> "BlockingResequencer":
        self._thread = LoopThread("headway-order")
        try:
            self._thread.run(self.__aenter__())
        except BaseException:
            self._thread.close()
            raise
        return BlockingResequencer(self, self._thread)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._thread.run(self.close())
        finally:
            self._thread.close()

    def _refuse_outside(self) -> None:
        if self._looking is None:  # nobody would ever look at what is held
            raise ConfigurationError(
                f"the resequencer {shown(self._name)!r} is not running, so nothing is offered to "
                "it: use it as `async with Resequencer(...) as order`, and offer inside the block"
            )


class BlockingResequencer:
    """What `with Resequencer(...)` gives: the same calls, which wait. Any thread may make them."""

    def __init__(self, order: Resequencer, thread: LoopThread) -> None:
        self._order = order
        self._thread = thread

    def offer(
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
        """Take one result; say what became of it: see `Resequencer.offer`."""
        result = Result(key, position, payload, step, begins, applied, caught_up)
        return self.offer_all([result])[0]

    def offer_all(self, results: list[Result]) -> list[Disposition]:
        """Take many results with few calls of the engine; say for each what became of it."""
        return self._thread.run(self._order.offer_all(results))

    def look(self, key: str) -> timedelta | None:
        """Look at one key, as a scheduled task does; say when to look again, if at all."""
        return self._thread.run(self._order.look(key))


def _awaited(apply: Apply) -> Callable[[Turn], Awaitable[None]]:
    return apply if inspect.iscoroutinefunction(apply) else in_thread(apply)
