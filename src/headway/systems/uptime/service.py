"""Results from a bus of Headway: SQLite without any server, or RabbitMQ.

Every result is one event, `UptimeResult`, with the result as its data.
"""

import asyncio
import base64
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from headway import ConfigurationError, HeadwayError, Service, connect, run_services
from headway.clock import CLOCK
from headway.order import Disposition
from headway.settings import WorkerSettings
from headway.systems.uptime.hosting import flush, flushed_to, look_every, scheduler_in
from headway.systems.uptime.metrics import Tally
from headway.systems.uptime.opening import open_processor
from headway.systems.uptime.processor import ResultProcessor
from headway.systems.uptime.settings import UptimeSettings

EVENT = "UptimeResult"
_AT_ONCE = 500
_CONCURRENCY = 50


class ResultLeftError(HeadwayError):
    """A result could be neither applied nor held: it is tried again as any event is."""


def uptime_service(take: Callable[[bytes], Any]) -> Service:
    """Give a service that hands every result to a consumer's front door."""
    service = Service("uptime")

    @service.on(EVENT)
    async def result(event: Any, _work: Any) -> None:
        if await take(msgspec.json.encode(event.data)) is Disposition.LEFT:
            raise ResultLeftError(f"result {event.event_id} was neither applied nor held")

    return service


async def run_on_bus(settings: UptimeSettings) -> None:
    """Take results from the bus until SIGTERM or Ctrl-C, and look at what is held."""
    tally = Tally()
    scheduler = scheduler_in(settings)
    processor = await open_processor(settings, tally, scheduler=scheduler)
    looking = asyncio.create_task(processor.backlog.run(look_every(settings)))
    flushing = asyncio.create_task(flushed_to(processor.store, tally, CLOCK))
    try:
        await run_services(
            uptime_service(processor.handle_result),
            bus=settings.bus_url,
            settings=WorkerSettings(concurrency=_CONCURRENCY),
        )
    finally:
        await _ended(processor, tally, looking, flushing)


async def _ended(
    processor: ResultProcessor,
    tally: Tally,
    looking: asyncio.Task[None],
    flushing: asyncio.Task[None],
) -> None:
    processor.backlog.stop()
    flushing.cancel()
    await asyncio.gather(looking, flushing, return_exceptions=True)
    await flush(processor.store, tally)
    await processor.close()


async def publish_results(
    settings: UptimeSettings, raws: Iterable[bytes], on_stored: Callable[[int], None]
) -> None:
    """Put results on the bus; what is no JSON is put there too, and kept as rejected."""
    async with connect(settings.bus_url) as bus:
        await bus.declare(uptime_service(_nobody))
        some: list[tuple[str, Any]] = []
        for raw in raws:
            some.append((EVENT, _data(raw)))
            if len(some) == _AT_ONCE:
                await bus.publish_all(some)
                on_stored(len(some))
                some = []
        if some:
            await bus.publish_all(some)
            on_stored(len(some))


def _data(raw: bytes) -> Any:
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        data = None
    return data if isinstance(data, dict) else _malformed(raw)


def _malformed(raw: bytes) -> dict[str, str]:
    """Give bytes that are no result as what an event can carry, so that none of them is lost."""
    try:
        return {"malformed": raw.decode()}
    except UnicodeDecodeError:
        return {"malformed_base64": base64.b64encode(raw).decode()}


async def _nobody(_raw: bytes) -> None:
    raise ConfigurationError("this service only declares its queue")
