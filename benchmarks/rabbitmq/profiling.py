"""Where the time of a Headway worker goes: `python -m benchmarks.rabbitmq.profiling [--store]`."""

import argparse
import sys
import tempfile
from collections import Counter
from typing import Any

from benchmarks.rabbitmq.broker import virtual_host
from benchmarks.rabbitmq.child import run_child
from headway.testing.servers.rabbitmq import RabbitMQ


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", action="store_true", help="with an SQLite store beside it")
    parser.add_argument("--events", type=int, default=20_000, help="thousands of events")
    parser.add_argument("--lines", type=int, default=25, help="functions shown of each thread")
    options = parser.parse_args()
    with RabbitMQ() as server, virtual_host(server) as url, tempfile.TemporaryDirectory() as folder:
        store = {"HEADWAY_STORE": f"sqlite:///{folder}/headway.db"} if options.store else {}
        said = run_child(
            "workers.profiled_headway",
            url,
            options.events,
            environment={"HEADWAY_BUS": url, **store},
        )
    print(f"{said['each'] / 1000:.1f} us an event while profiled, all waiting included\n")
    for thread, functions in said["threads"].items():
        _show(thread, functions, options.lines)
    return 0


def _show(thread: str, functions: list[Any], lines: int) -> None:
    total = sum(each for _, _, each in functions)
    print(f"{thread}: {total / 1000:.1f} us of processor an event")
    packages: Counter[str] = Counter()
    for module, _, each in functions:
        packages[_package(module)] += each
    shares = [f"{name} {each / total:.0%}" for name, each in packages.most_common(8) if total]
    print(f"  {', '.join(shares)}")
    for module, function, each in functions[:lines]:
        print(f"  {each / 1000:8.2f} us {each / total:6.1%}  {module}: {function}")
    print()


def _package(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:3]) if parts[0] == "headway" else parts[0]


if __name__ == "__main__":
    sys.exit(main())
