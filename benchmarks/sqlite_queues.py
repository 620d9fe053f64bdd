"""Events from one SQLite file: 256 bytes of JSON, a handler that does nothing, one process.

What is measured is consumption, from the first event taken to the last one settled. Headway works
effectively once: a done-record for every event, in the same commit as its settlement, and the disk
is waited for (synchronous=FULL). huey is at most once and does not wait for the disk; persist-queue
acknowledges each item. All get their events from a backlog, and run as fast as their own loop lets
them.
"""

import asyncio
import gc
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huey
import persistqueue

from benchmarks.measure import Table, interleave
from headway import Event, Service, Work, connect, run_services
from headway.assembly.collecting import collect_seldom
from headway.testing.engines import Worker
from headway.testing.ports import Engine

EVENTS = {"headway": 40_000, "huey": 6_000, "persist-queue": 3_000}
PAYLOAD = {"order": 0, "text": "x" * 220}
BATCH = 1_000
PROCESSES = 4
_PROCESS_EVENTS = 60_000


def measure(rounds: int) -> list[Table]:
    rounds = max(rounds // 3, 5)
    return [_one_process(rounds), _four_processes(max(rounds // 2, 3))]


def _one_process(rounds: int) -> Table:
    contestants: dict[str, Callable[[], float]] = {
        "headway": lambda: asyncio.run(_headway(effect=False)),
        "headway, with a document each": lambda: asyncio.run(_headway(effect=True)),
        "huey (at most once)": _huey,
        "persist-queue (with acknowledgement)": _persist_queue,
    }
    title = "SQLite, one process, effectively once: what an event costs"
    table = interleave(title, contestants, against="headway", rounds=rounds)
    table.unit = "ns per event"
    for peer in ("huey (at most once)", "persist-queue (with acknowledgement)"):
        table.goal(f"headway / {peer}", 1 / table.rows[peer][1], 1 / 8)
    return table


async def _headway(*, effect: bool) -> float:
    count = EVENTS["headway"]
    seen = 0
    service = Service("bench")
    workers: list[Worker] = []

    @service.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        nonlocal seen
        if effect:
            work.documents("orders").add({"order": 1})
        seen += 1
        if seen == count:
            workers[0].stop()

    def started(worker: Worker, _engine: Engine) -> None:
        workers.append(worker)

    with _folder() as folder:
        url = f"sqlite:///{folder}/headway.db"
        await _fill(service, url, count)
        with _as_headway_run():
            began = time.perf_counter_ns()
            await run_services(service, bus=url, started=started)
            return (time.perf_counter_ns() - began) / count


@contextmanager
def _as_headway_run() -> Iterator[None]:
    """Set the process up like that of `headway run`, and back again for the others."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


async def _fill(service: Service, url: str, count: int) -> None:
    async with connect(url) as headway:
        await headway.declare(service)
        for _ in range(0, count, BATCH):
            await headway.publish_all([("OrderPlaced", PAYLOAD)] * BATCH)


def _huey() -> float:
    count = EVENTS["huey"]
    with _folder() as folder:
        queue = huey.SqliteHuey("bench", filename=str(folder / "huey.db"), results=False)

        @queue.task()  # type: ignore[untyped-decorator]
        def handle(_data: dict[str, Any]) -> None: ...

        for _ in range(count):
            handle(PAYLOAD)
        began = time.perf_counter_ns()
        while (task := queue.dequeue()) is not None:
            queue.execute(task)
        return (time.perf_counter_ns() - began) / count


def _persist_queue() -> float:
    count = EVENTS["persist-queue"]
    with _folder() as folder:
        queue = persistqueue.SQLiteAckQueue(str(folder), auto_commit=True, multithreading=True)
        for _ in range(count):
            queue.put(PAYLOAD)
        began = time.perf_counter_ns()
        for _ in range(count):
            queue.ack(queue.get())
        taken = (time.perf_counter_ns() - began) / count
        queue.close()
        return taken


def _four_processes(rounds: int) -> Table:
    """Several workers on one file: together, and how long the unluckiest had to wait for a turn."""
    totals, waits, shares = [], [], []
    for _ in range(rounds):
        total, wait, share = asyncio.run(_together())
        totals.append(total)
        waits.append(wait)
        shares.append(share)
    table = Table(f"SQLite, {PROCESSES} processes on one file", "", "")
    table.notes = [
        f"{statistics.median(totals):,.0f} events a second in all",
        f"longest wait of any process between two commits {statistics.median(waits):.2f} s",
        f"smallest share of any process {statistics.median(shares):.0%} (a fair one is 25%)",
    ]
    return table


async def _together() -> tuple[float, float, float]:
    with _folder() as folder:
        url = f"sqlite:///{folder}/headway.db"
        service = Service("bench")

        @service.on("OrderPlaced")
        async def handle(event: Event, work: Work) -> None: ...

        await _fill(service, url, _PROCESS_EVENTS)
        command = [sys.executable, "-m", "benchmarks.sqlite_worker", url, str(folder)]
        running = [subprocess.Popen(command) for _ in range(PROCESSES)]
        while len(list(folder.glob("ready-*"))) < PROCESSES:
            await asyncio.sleep(0.01)
        began = time.perf_counter()
        (folder / "go").touch()
        async with connect(url) as headway:
            while (await headway.balance()).done < _PROCESS_EVENTS:
                await asyncio.sleep(0.02)
        seconds = time.perf_counter() - began
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
        lines = [path.read_text().split() for path in folder.glob("worker-*")]
        counts = [int(count) for count, _ in lines]
        longest = max(float(wait) for _, wait in lines)
        return _PROCESS_EVENTS / seconds, longest, min(counts) / sum(counts)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headway-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    for made in measure(15):
        print(made.as_text())
