"""Compare this checkout with another commit: the same turns of both, interleaved.

The other commit is installed in a folder of its own, with its own dependencies and its own
benchmark code. It runs twice in each round: the ratio of the two is the noise of the machine.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from benchmarks import turns
from benchmarks.measure import Table, progress

ROOT = Path(__file__).parents[1]
ALLOWED = 1.03
"""A ratio that is always accepted, however quiet the machine."""
LEAST_ROUNDS = 15
_SAMPLES = 4_000
_NOISE = 0.95


def compare(commit: str, suites: Sequence[str], rounds: int) -> list[Table]:
    """Run every turn of the suites in both checkouts; give one table a suite."""
    if rounds < LEAST_ROUNDS:
        print(f"{rounds} rounds are few: use {LEAST_ROUNDS} or more", file=sys.stderr)
    with ExitStack() as stack:
        other = stack.enter_context(_installed(commit))
        here, base, again = (
            stack.enter_context(_Checkout(folder)) for folder in (ROOT, other, other)
        )
        checkouts = (here, base, again)
        names = [
            name
            for name in here.turns
            if name.partition("/")[0] in suites and name in base.turns and name in again.turns
        ]
        for name in names:  # the first turn starts servers and fills caches
            for checkout in checkouts:
                checkout.run(name)
        costs: dict[str, list[list[float]]] = {name: [] for name in names}
        for number in range(rounds):
            for at, name in enumerate(names):
                title = f"round {number + 1} of {rounds}: {name}"
                progress(title, number * len(names) + at, rounds * len(names))
                order = random.sample(range(3), 3)
                taken = {which: checkouts[which].run(name) for which in order}
                costs[name].append([taken[which] for which in range(3)])
        progress("done", rounds * len(names), rounds * len(names))
    return [_table(suite, commit, costs) for suite in suites]


def _table(suite: str, commit: str, costs: dict[str, list[list[float]]]) -> Table:
    rounds = len(next(iter(costs.values())))
    table = Table(f"{suite}: this checkout against {commit}, {rounds} rounds", "ns", commit)
    for name, taken in costs.items():
        if name.partition("/")[0] != suite:
            continue
        turn = name.partition("/")[2]
        ratios = [here / base for here, base, _ in taken]
        ratio = statistics.median(ratios)
        low, high = interval([again / base for _, base, again in taken])
        ours = interval(ratios)
        table.rows[turn] = (statistics.median(here for here, _, _ in taken), ratio)
        table.notes.append(
            f"{turn}: {ratio:.3f} ({ours[0]:.3f} to {ours[1]:.3f}); "
            f"{commit} against itself: {low:.3f} to {high:.3f}"
        )
        table.goal(turn, ratio, max(ALLOWED, high))
    return table


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Give the interval in which the median of such ratios lies, by resampling them."""
    draw = random.Random(0)
    medians = sorted(
        statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(_SAMPLES)
    )
    cut = round(_SAMPLES * (1 - _NOISE) / 2)
    return medians[cut], medians[-cut - 1]


@contextmanager
def _installed(commit: str) -> Iterator[Path]:
    """Give a checkout of a commit with a virtual environment of its own."""
    folder = Path(tempfile.mkdtemp(prefix="headway-against-"))
    try:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, capture_output=True, check=False
        )
        if archive.returncode:
            raise SystemExit(f"--against {commit}: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
        for step in ("develop", "bench"):
            subprocess.run(["tools/setup", step], cwd=folder, check=True)
        yield folder
    finally:
        shutil.rmtree(folder)


class _Checkout:
    """The turns of one checkout, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        own = folder / "benchmarks" / "turns.py"
        # A commit without turns of its own is driven by ours, which call its benchmark code.
        script = own if own.exists() else Path(turns.__file__)
        python = folder / ".venv" / "bin" / "python"
        self._process = subprocess.Popen(
            [python if python.exists() else sys.executable, "-P", script],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.turns: list[str] = self._answer()

    def run(self, name: str) -> float:
        """Run one turn and give its cost."""
        assert self._process.stdin is not None  # noqa: S101 (a pipe was asked for)
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        cost: float = self._answer()
        return cost

    def _answer(self) -> Any:
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the turns ended with code {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.close()
        self._process.wait()
