"""A service whose handlers keep leased documents for as long as a file is there.

The lease is far longer than any test: an event that starts earlier did not wait for its end.
"""

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

from headway import Event, Lifecycle, Service, Work

SITE = Path(os.environ["SITE"])

leased = Service(
    "leased",
    lifecycles=[Lifecycle("docs", lease=timedelta(minutes=10), max_attempts=1000)],
)


@leased.on("Filed")
async def file(event: Event, work: Work) -> None:
    work.documents("docs").insert_new({"_id": event.data["doc"]})
    log(f"filed {event.data['doc']} {os.getpid()} {time.time()}\n")


@leased.on("Used", documents=("docs", "doc"))
async def use(event: Event, work: Work) -> None:
    await keep(event.data["name"])
    for one in work.document_ids:
        work.put_off(one)  # the next event has work to do, too


@leased.on("Plain")
async def plain(event: Event, _work: Work) -> None:
    await keep(event.data["name"])


async def keep(name: str) -> None:
    log(f"started {name} {os.getpid()} {time.time()}\n")
    while (SITE / f"keep-{name}").exists():  # noqa: ASYNC110 (another process removes it)
        await asyncio.sleep(0.005)
    log(f"ended {name} {os.getpid()} {time.time()}\n")


def log(line: str) -> None:
    """Append in one go: processes do not write into each other's lines, and nothing is buffered."""
    descriptor = os.open(SITE / "begun.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
