"""The Headway worker of the benchmark, with a profiler in each of its threads.

Profiling costs, most where functions are small: read shares, not sums. Built-in functions which let
other threads run (they wait, or talk to the system) are left out: in them a thread stands in line
for the interpreter, and that is the other threads' time.
"""

import asyncio
import cProfile
import pstats
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import Tally
from benchmarks.rabbitmq.workers.headway import bench_service, fill, work_off

_LETS_OTHERS_RUN = ("poll", "select", "acquire", "recv", "send", "SimpleQueue", "sqlite3", "sleep")


class Profiled:
    """What was seen of one thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.processor = 0.0
        self._profile = cProfile.Profile()

    def run(self, function: Any, *arguments: Any) -> None:
        began = time.thread_time()
        try:
            self._profile.runcall(function, *arguments)
        finally:
            self.processor = time.thread_time() - began

    def figures(self) -> dict[str, Any]:
        own: Counter[tuple[str, str]] = Counter()
        stats: dict[Any, Any] = vars(pstats.Stats(self._profile))["stats"]
        for (path, _line, function), (_, _, seconds, _, _) in stats.items():
            if path != "~" or not any(each in function for each in _LETS_OTHERS_RUN):
                own[_module(path), function] += seconds
        places = [(*place, seconds) for place, seconds in own.most_common()]
        return {"name": self.name, "processor": self.processor, "places": places}


def _module(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    for root in ("site-packages", "src", f"python3.{sys.version_info.minor}"):
        if root in parts:
            return ".".join(parts[parts.index(root) + 1 :])
    return "built in" if path == "~" else parts[-1]


def _profile_new_threads(threads: list[Profiled]) -> None:
    run = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        threads.append(Profiled(thread.name))
        threads[-1].run(run, thread)

    threading.Thread.run = profiled  # type: ignore[assignment,method-assign]


def main(url: str, count: int) -> None:
    tally = Tally(count)
    service = bench_service(tally)
    asyncio.run(fill(service, url, count))
    threads = [Profiled("event loop")]
    _profile_new_threads(threads)
    threads[0].run(asyncio.run, work_off(service, tally))
    report(each=tally.each, threads=[thread.figures() for thread in threads])


main(sys.argv[1], int(sys.argv[2]))
