"""What it costs to import headway, in a fresh interpreter each time."""

import statistics
import subprocess
import sys

from benchmarks.measure import Table

_CODE = """
import sys, time
started = time.perf_counter_ns()
{statement}
print(time.perf_counter_ns() - started)
"""

STATEMENTS = {
    "import headway": "import headway",
    "from headway import retry": "from headway import retry",
    "import tenacity": "import tenacity",
    "import stamina": "import stamina",
}


def measure(rounds: int) -> list[Table]:
    costs: dict[str, list[int]] = {name: [] for name in STATEMENTS}
    for _ in range(rounds):
        for name, statement in STATEMENTS.items():
            code = _CODE.format(statement=statement)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            costs[name].append(int(done.stdout))
    table = Table("import", "ns", "import tenacity")
    base = statistics.median(costs["import tenacity"])
    for name, figures in costs.items():
        cost = statistics.median(figures)
        table.rows[name] = (cost, cost / base)
    table.goal("import headway, ms", table.rows["import headway"][0] / 1e6, 60.0)
    return [table]
