"""Where the time of a Headway worker goes: `python -m benchmarks.rabbitmq.profiling [--store]`."""

import argparse
import sys
import tempfile
from collections import defaultdict

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
    print(f"{1e9 / said['each']:,.0f} events a second while profiled\n")
    for thread in said["threads"]:
        _show(thread["name"], thread["processor"] / options.events, thread["places"], options.lines)
    return 0


def _show(name: str, each: float, places: list[tuple[str, str, float]], lines: int) -> None:
    total = sum(seconds for _, _, seconds in places)
    packages: defaultdict[str, float] = defaultdict(float)
    for module, _, seconds in places:
        packages[_package(module)] += seconds
    most = sorted(packages, key=lambda package: -packages[package])[:8]
    shares = [f"{package} {packages[package] / total:.0%}" for package in most]
    print(f"{name}: {each * 1e6:.1f} us of processor an event")
    print(f"  {', '.join(shares)}")
    for module, function, seconds in places[:lines]:
        print(f"  {seconds / total:6.1%}  {module}: {function}")
    print()


def _package(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:3]) if parts[0] == "headway" else parts[0]


if __name__ == "__main__":
    sys.exit(main())
