"""The Headway worker of the benchmark with a profiler in each of its threads.

It counts processor time of the thread, so that waiting, for the broker or for the interpreter's
lock, costs nothing. Profiling itself costs, most where functions are small: read shares, not sums.
"""

import asyncio
import cProfile
import pstats
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import Tally
from benchmarks.rabbitmq.workers.headway import bench_service, fill, work_off

Own = Counter[tuple[str, str]]
"""Seconds of each function, without those that it calls: by module and name."""


def main(url: str, count: int) -> None:
    tally = Tally(count)
    service = bench_service(tally)
    asyncio.run(fill(service, url, count))
    others: list[cProfile.Profile] = []
    _profile_new_threads(others)
    mine = cProfile.Profile(time.thread_time)
    mine.runcall(asyncio.run, work_off(service, tally))
    threads = {"event loop": _own(mine)}
    threads |= {f"thread {number}": _own(each) for number, each in enumerate(others, 1)}
    report(
        each=tally.each,
        threads={
            name: [(*where, seconds / count * 1e9) for where, seconds in own.most_common()]
            for name, own in threads.items()
        },
    )


def _profile_new_threads(profiles: list[cProfile.Profile]) -> None:
    run = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        profile = cProfile.Profile(time.thread_time)
        profiles.append(profile)
        profile.runcall(run, thread)

    threading.Thread.run = profiled  # type: ignore[assignment,method-assign]


def _own(profile: cProfile.Profile) -> Own:
    own: Own = Counter()
    profile.create_stats()
    for (path, _line, function), (_, _, seconds, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        own[_module(path), function] += seconds
    return own


def _module(path: str) -> str:
    if not Path(path).is_absolute():
        return "built in"
    parts = Path(path).with_suffix("").parts
    for root in ("site-packages", "src", "python3.11", "python3.12", "python3.13"):
        if root in parts:
            return ".".join(parts[parts.index(root) + 1 :])
    return parts[-1]


main(sys.argv[1], int(sys.argv[2]))
