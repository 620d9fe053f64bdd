"""A service whose workers are killed all the time.

Everything that the test has to know afterwards is written outside of the engine.
"""

import asyncio
import os
from pathlib import Path
from zlib import crc32

from headway import Event, Service, Work

SITE = Path(os.environ["SITE"])
ONCE = SITE / "failed-once"

hardship = Service("hardship")


@hardship.on("Step", failed="StepFailed")
async def step(event: Event, work: Work) -> None:
    number = event.data["number"]
    log(f"{number} {work.attempt} {os.getpid()}\n")
    await asyncio.sleep(0.005 + crc32(str(number).encode()) % 46 / 1000)
    if event.data["kind"] == "poison":
        raise ValueError(f"step {number} is poison")
    if event.data["kind"] == "fails once" and first_time(number):
        raise ConnectionResetError(f"step {number} fails once")
    work.documents("steps").add({"number": number})
    work.documents("totals").increment("all", "steps")


def log(line: str) -> None:
    """Append in one go: processes do not write into each other's lines, and nothing is buffered."""
    descriptor = os.open(SITE / "begun.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def first_time(number: int) -> bool:
    """Remember it outside of the process, which may die before it has failed."""
    try:
        (ONCE / str(number)).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
