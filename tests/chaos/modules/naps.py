"""A handler that blocks the event loop of its worker, among others that do not."""

# ruff: noqa: ASYNC251 (what it is about)

import asyncio
import ctypes
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from headway import Event, Lifecycle, Service

SITE = Path(os.environ["SITE"])
MINUTE = 60.0
naps = Service("naps", lifecycles=[Lifecycle("sleepers")])


@naps.on("Nap")
async def nap(event: Event, work: Any) -> None:
    how = "short" if (SITE / "awake").exists() else event.data["how"]
    (SITE / f"began-{event.data['number']}").touch()
    if how == "sleep":
        time.sleep(MINUTE)
    elif how == "spin":
        until = time.monotonic() + MINUTE
        while time.monotonic() < until:
            pass
    elif how == "clutch":  # it holds the lock of the interpreter, so that no thread can run
        ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
    elif how == "inside":
        await asyncio.create_task(blocked())
    elif how == "wait":
        await asyncio.sleep(MINUTE)
    elif how == "second":
        time.sleep(1.6)
    elif how == "stubborn":
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(MINUTE)
    work.documents("slept").add({"number": event.data["number"]})


async def blocked() -> None:
    await asyncio.sleep(0)
    time.sleep(MINUTE)


def key_of_dream(event: Event) -> str:
    (SITE / f"began-{event.data['number']}").touch()
    how = "short" if (SITE / "awake").exists() else event.data["how"]
    time.sleep({"second": 1.6, "sleep": MINUTE}.get(how, 0))
    return f"dream-{event.data['number']}"


@naps.on("Dream", dedup=key_of_dream)
async def dream(event: Event, work: Any) -> None:
    work.documents("slept").add({"number": event.data["number"]})


@naps.on("Snore")
def snore(event: Event, work: Any) -> None:
    blocked()  # type: ignore[unused-coroutine]
    work.documents("slept").add({"number": event.data["number"]})
