"""The worker of the disturbance benchmark."""

import asyncio
import sys
import time
from pathlib import Path

from headway import DocumentNotFoundError, Event, Service, Work, run_services


async def main(url: str, folder: Path) -> None:
    late: list[str] = []
    service = Service("bench")

    @service.on("Order")
    async def handle(event: Event, work: Work) -> None:
        if "fails_until" in event.data:
            if time.time() < event.data["fails_until"]:
                raise DocumentNotFoundError("orders", ["a"])
            return
        late.append(str(time.time() - event.data["sent"]))

    ready = asyncio.get_running_loop().call_later(1, (folder / "ready").touch)
    await run_services(service, bus=url)
    ready.cancel()
    (folder / "late").write_text(" ".join(late))


asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
