"""Run the benchmarks: `python -m benchmarks [name ...] [--json] [--against COMMIT]`."""

import argparse
import json
import sys

from benchmarks import (
    against,
    consensus,
    costs,
    disturbance,
    imports,
    ordering,
    rabbitmq_queues,
    retrying,
    sqlite_queues,
    sweeping,
)
from benchmarks.measure import Table

SUITES = {
    "retrying": retrying.measure,
    "imports": imports.measure,
    "sqlite": sqlite_queues.measure,
    "disturbance": disturbance.measure,
    "rabbitmq": rabbitmq_queues.measure,
    "sweeping": sweeping.measure,
    "ordering": ordering.measure,
    "consensus": consensus.measure,
    "costs": costs.measure,
}
COMPARED = ("sqlite", "rabbitmq", "ordering")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SUITES)}; all by default")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds of each")
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help=f"compare this checkout with that commit instead of peers: {', '.join(COMPARED)}",
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(SUITES)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    tables: list[Table] = []
    if options.against:
        uncompared = set(options.names) - set(COMPARED)
        if uncompared:
            parser.error(f"--against does not know: {', '.join(sorted(uncompared))}")
        tables = against.compare(options.against, options.names or COMPARED, options.rounds)
    else:
        for name in options.names or SUITES:
            tables += SUITES[name](options.rounds)
    if options.json:
        print(json.dumps([table.as_json() for table in tables], indent=2))
    else:
        for table in tables:
            print(table.as_text())
    return 0 if all(goal.reached for table in tables for goal in table.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
