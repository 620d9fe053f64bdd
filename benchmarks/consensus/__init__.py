"""The mail pipeline on the embedded default: how fast, how much of it is embedding, how it grows.

All seven services run in one worker process, as `headway run` starts it, on one SQLite file. The
time counts from the moment when an archive is submitted until nothing is on its way any more: it is
then parsed, chunked, embedded, summarized, and the pages of all threads are written.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.consensus.mailing_list import write_list
from benchmarks.consensus.pipeline_run import Run, run_pipeline
from benchmarks.measure import Table

SIZES = (1_000, 5_000, 20_000)
_GROWTH = 1.3


def measure(rounds: int) -> list[Table]:
    return growth(SIZES, rounds=max(rounds // 5, 1))


def growth(sizes: Sequence[int], *, rounds: int) -> list[Table]:
    """Run archives of several sizes, one after the other, some times over."""
    runs: dict[int, list[Run]] = {size: [] for size in sizes}
    with TemporaryDirectory(prefix="headway-consensus-") as folder:
        for number in range(rounds):
            for size in sizes:
                place = Path(folder, f"{size}-{number}")
                place.mkdir()
                archive = write_list(place / "list.mbox", size)
                runs[size].append(run_pipeline(place, archive, size))
    table = Table("Mail pipeline on the embedded default, one worker", "ns per message", "")
    least = min(sizes)
    for size in sizes:
        each = statistics.median(run.each for run in runs[size])
        ratios = [run.each / few.each for run, few in zip(runs[size], runs[least], strict=True)]
        table.rows[f"{size:,} messages"] = (each * 1e9, statistics.median(ratios))
        table.notes.append(_note(size, runs[size]))
    table.against = f"{least:,}"
    most = max(sizes)
    table.goal(
        f"time for each message, {most:,} / {least:,}",
        table.rows[f"{most:,} messages"][1],
        _GROWTH,
    )
    return [table]


def _note(size: int, runs: Sequence[Run]) -> str:
    rate = statistics.median(1 / run.each for run in runs)
    embedding = statistics.median(run.embedding for run in runs)
    processor = statistics.median(run.processor for run in runs)
    megabytes = statistics.median(run.megabytes for run in runs)
    return (
        f"{size:,} messages: {rate:.0f} a second; embedding {embedding:.1%} of the time, the "
        f"processor {processor:.0%} busy; {megabytes:.0f} MB at most"
    )
