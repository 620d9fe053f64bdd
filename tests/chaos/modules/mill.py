"""Four services, each with a collection of its own, whose workers are killed all the time.

What becomes of a grain is told by its number, so that documents may lack everything but their id.
What the test has to know afterwards is written outside of the engine.
"""

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path
from zlib import crc32

from headway import Event, Lifecycle, RetryPolicy, Service, Work
from headway.retrying import FloodRule, Stepped

SITE = Path(os.environ["SITE"])
ONCE = SITE / "failed-once"
GRAINS = ("wheat", "rye", "oats", "corn")
MAX_ATTEMPTS = 4
KINDS = (
    "lost", "killed", "failed", "naive", "bare", "processing", "exhausted", "poison", "jams",
    "future",
)  # fmt: skip


class JammedError(Exception):
    """Of a kind that no rule knows: the next try may go well."""


def kind_of(grain: str) -> str:
    return KINDS[int(grain.rpartition("-")[2]) % len(KINDS)]


def service_for(collection: str) -> Service:
    soon = Stepped(steps=(timedelta(seconds=0.2),))
    lifecycle = Lifecycle(collection, max_attempts=MAX_ATTEMPTS, lease=timedelta(seconds=4))
    service = Service(
        f"mill-{collection}",
        lifecycles=[lifecycle],
        # In the end nothing but poison is left, which is no reason to pause here.
        flood=FloodRule(share=1.0),
        transient=RetryPolicy(max_attempts=2, backoff=soon),
    )

    @service.on(f"{collection.title()}Came", dedup="grains", documents=(collection, "grains"))
    async def grind(event: Event, work: Work) -> None:
        (found,) = await work.documents(collection).require(event.data["grains"])
        grain = found["_id"]
        said = f"{grain} {work.key.split('/')[2]} {event.timestamp} {os.getpid()}"
        log(f"begin {time.time():.6f} {said}\n")
        await asyncio.sleep(0.01 + crc32(grain.encode()) % 50 / 1000)
        try:
            if kind_of(grain) == "poison":
                raise ValueError(f"{grain} is poison")
            if kind_of(grain) == "jams" and first_time(grain):
                raise JammedError(grain)
            work.documents("flour").add({"grain": grain})
            work.documents("totals").increment("all", "flour")
        finally:
            log(f"end {time.time():.6f} {said}\n")

    return service


def log(line: str) -> None:
    """Append in one go: processes do not write into each other's lines, and nothing is buffered."""
    descriptor = os.open(SITE / "ground.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def first_time(grain: str) -> bool:
    """Remember it outside of the process, which may die before it has failed."""
    try:
        (ONCE / grain).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


wheat, rye, oats, corn = map(service_for, GRAINS)
