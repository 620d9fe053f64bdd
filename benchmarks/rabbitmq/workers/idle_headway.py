"""A Headway worker that waits for events which never come; the engine is HEADWAY_BUS."""

import asyncio

from headway import Event, Service, Work, run_services
from headway.assembly.collecting import collect_seldom

service = Service("bench")


@service.on("OrderPlaced")
async def handle(event: Event, work: Work) -> None: ...


collect_seldom()
asyncio.run(run_services(service))
