"""One of several processes that work off the same file; it writes down how it fared."""

import asyncio
import os
import sys
import time
from pathlib import Path

from headway import Event, Service, Work, run_services
from headway.assembly.collecting import collect_seldom
from headway.facts import Fact, Processed


class Waits:
    """Hears of every commit, and keeps the longest time between two."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        self._last = 0.0

    def tell(self, fact: Fact) -> None:
        if isinstance(fact, Processed):
            now = time.monotonic()
            if self.count:
                self.longest = max(self.longest, now - self._last)
            self.count += len(fact.seconds)
            self._last = now


async def main(url: str, folder: Path) -> None:
    service = Service("bench")
    waits = Waits()

    @service.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None: ...

    collect_seldom()
    (folder / f"ready-{os.getpid()}").touch()
    while not (folder / "go").exists():
        await asyncio.sleep(0.005)
    await run_services(service, bus=url, observer=waits)
    (folder / f"worker-{os.getpid()}").write_text(f"{waits.count} {waits.longest}")


asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
