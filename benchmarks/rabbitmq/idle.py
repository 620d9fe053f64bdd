"""What a worker costs that has nothing to do."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Table
from benchmarks.rabbitmq.broker import virtual_host
from headway.testing.servers.rabbitmq import RabbitMQ

_STARTED_AFTER = 3
_WATCHED_FOR = 10
_MOST_PERCENT = 1.0
_MOST_MEGABYTES = 35.0


def idle_worker(server: RabbitMQ, rounds: int) -> Table:
    """Watch an idle Headway worker."""
    runs = [_watch(server) for _ in range(rounds)]
    percent, megabytes = (statistics.median(each) for each in zip(*runs, strict=True))
    table = Table("RabbitMQ, a Headway worker that has nothing to do", "", "")
    table.goal("processor, %", percent, _MOST_PERCENT)
    table.goal("memory, MB", megabytes, _MOST_MEGABYTES)
    return table


def _watch(server: RabbitMQ) -> tuple[float, float]:
    with virtual_host(server) as url:
        worker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.rabbitmq.workers.idle_headway"],
            env={**os.environ, "HEADWAY_BUS": url},
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(_STARTED_AFTER)
            before = _processor_seconds(worker.pid)
            time.sleep(_WATCHED_FOR)
            percent = (_processor_seconds(worker.pid) - before) / _WATCHED_FOR * 100
            megabytes = _megabytes(worker.pid)
        finally:
            worker.terminate()
            worker.wait()
        return percent, megabytes


def _processor_seconds(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no memory: it ended")
