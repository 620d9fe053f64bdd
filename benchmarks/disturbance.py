"""Does an event that fails for 30 seconds delay any other?

Events come in steadily while a worker process handles them; how late each is begun is written down.
Every second run has one more event, which fails again and again until 30 seconds are over. What
counts is the 99th percentile with it against the 99th percentile without it, in pairs.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Table
from headway import connect

SECONDS = 32
EVERY = 0.01
PAIRS = 5


def measure(rounds: int) -> list[Table]:
    ratios, alone, disturbed = [], [], []
    for _ in range(min(PAIRS, rounds)):
        without = asyncio.run(_run(failing=False))
        with_it = asyncio.run(_run(failing=True))
        alone.append(without)
        disturbed.append(with_it)
        ratios.append(with_it / without)
    table = Table("An event that fails for 30 s: how late others begin (p99)", "", "")
    said = f"without it {_ms(alone)}, with it {_ms(disturbed)} (medians of {len(ratios)} runs)"
    table.notes = [said]
    table.goal("p99 with it / without it, median of pairs", statistics.median(ratios), 1.1)
    return [table]


def _ms(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.1f} ms"


async def _run(*, failing: bool) -> float:
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/headway.db"
        worker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.disturbed_worker", url, name],
            env={**os.environ, "RETRY_MAX_ATTEMPTS": "1000", "RETRY_MAX_DELAY_SECONDS": "1"},
            stderr=subprocess.DEVNULL,
        )
        while not (folder / "ready").exists():
            await asyncio.sleep(0.01)
        async with connect(url) as headway:
            if failing:
                await headway.publish("Order", {"fails_until": time.time() + 30})
            began = time.monotonic()
            sent = 0
            while (passed := time.monotonic() - began) < SECONDS:
                await headway.publish("Order", {"sent": time.time()})
                sent += 1
                await asyncio.sleep(max(sent * EVERY - passed, 0))
            while (await headway.balance()).done < sent + failing:
                await asyncio.sleep(0.05)
        worker.terminate()
        worker.wait()
        late = sorted(map(float, (folder / "late").read_text().split()))
        return late[int(len(late) * 0.99)]
