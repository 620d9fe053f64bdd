"""What the tests of services have in common."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from headway import Event, Service, Work
from headway.operations import Letter
from headway.settings import WorkerSettings
from headway.testing.engines import Worker, memory_engine
from headway.testing.ports import Travel, encode
from headway.testing.trial import Trial

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Failing:
    """A handler that fails as told, then succeeds; it remembers when it was called."""

    def __init__(self, *failures: BaseException, trial: Callable[[], Trial] | None = None) -> None:
        self._failures = list(failures)
        self._trial = trial
        self.attempts: list[int] = []
        self.times: list[datetime] = []

    async def __call__(self, event: Event, work: Work) -> None:
        self.attempts.append(work.attempt)
        if self._trial is not None:
            self.times.append(self._trial().clock.now())
        if self._failures:
            raise self._failures.pop(0)

    @property
    def waits(self) -> list[float]:
        """Seconds between the calls."""
        pairs = zip(self.times, self.times[1:], strict=False)
        return [(after - before).total_seconds() for before, after in pairs]


def failing(*failures: BaseException, **trial_settings: Any) -> tuple[Failing, Trial]:
    """Give a service `orders` for `OrderPlaced` that fails as told, and its trial."""
    handler = Failing(*failures, trial=lambda: trial)
    orders = Service("orders")
    orders.on("OrderPlaced", failed="OrderFailed", dedup="order")(handler)
    trial = Trial(orders, **trial_settings)
    return handler, trial


def trial_of(
    handler: Callable[..., Any], settings: WorkerSettings | None = None, **options: Any
) -> Trial:
    """Give a trial of a service `orders` whose handler of `OrderPlaced` this is."""
    orders = Service("orders")
    orders.on("OrderPlaced", **options)(handler)
    return Trial(orders, settings=settings)


async def ran(handler: Callable[..., Any], *events: Any, **options: Any) -> Trial:
    """Run such a service over events with these data, or over one; their ids are e1, e2, ..."""
    trial = trial_of(handler, **options)
    for number, data in enumerate(events or [None], 1):
        await trial.publish("OrderPlaced", data, event_id=f"e{number}")
    await trial.run()
    await assert_all_is_accounted_for(trial)
    return trial


def lost(times: int) -> list[BaseException]:
    """Give errors of the infrastructure."""
    return [ConnectionResetError(f"reset {n}") for n in range(times)]


def bus_of(worker: Worker) -> Any:
    return worker._engine.bus


def crash(trial: Trial, worker: Worker) -> None:
    """Let the process of a worker die: whatever it still does has no effect."""
    trial.state.crash(bus_of(worker))


@asynccontextmanager
async def worker_on(
    trial: Trial, settings: WorkerSettings | None = None, /, **ports: Any
) -> AsyncIterator[Worker]:
    """Run a worker on an engine of which some ports are replaced."""
    engine = memory_engine(trial.clock, trial.chance, trial.state)
    given = {name: make(getattr(engine, name)) for name, make in ports.items()}
    worker = Worker(
        trial.services,
        replace(engine, **given),
        clock=trial.clock,
        chance=trial.chance,
        observer=trial.facts,
        settings=settings,
    )
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await task


async def until(trial: Trial, holds: Callable[[], bool], at_most: timedelta = 10 * MINUTE) -> None:
    """Let time pass until something holds."""
    start, step = trial.clock.now(), timedelta(milliseconds=10)
    while not holds():
        assert trial.clock.now() - start < at_most, "it never came to that"
        await trial.clock.wait(step)
        step = min(step * 1.2, timedelta(milliseconds=500))


def redeliver(
    trial: Trial, event_id: str, data: Any = None, queue: str = "orders.order.placed"
) -> None:
    """Put an event into a queue once more, as a broker does that delivers twice."""
    body = encode(Event("OrderPlaced", event_id, data={} if data is None else data))
    trial.state.put(queue, body, Travel(operation=event_id), trial.clock.now())


async def reasons(trial: Trial, queue: str = "orders.failed") -> list[str]:
    """Say why each dead letter was written."""
    return [letter.abandoned_reason for letter in await trial.letters(queue)]


async def only_letter(trial: Trial, queue: str = "orders.failed") -> Letter:
    """Give the one dead letter that there is."""
    (letter,) = await trial.letters(queue)
    return letter


async def assert_all_is_accounted_for(trial: Trial) -> None:
    """Whatever was accepted is in exactly one place."""
    missing, astray = await trial.engine.places.astray(10)
    assert (missing, list(astray)) == (0, [])
