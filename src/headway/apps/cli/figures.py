"""Progress while it runs, and the table of figures at its end."""

import contextlib
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from headway.systems.ledger.load.run import Report

_FAULTS_SHOWN = 5
_WIDE = 100


class Tick:
    """Moves the bar on by one; `say` changes the words beside it."""

    def __init__(self, progress: Progress, total: int, words: str) -> None:
        self._progress = progress
        self._task = progress.add_task(words, total=total)

    def __call__(self) -> None:
        self._progress.advance(self._task)

    def say(self, words: str) -> None:
        self._progress.update(self._task, description=words)


@contextlib.contextmanager
def progress(total: int, words: str, *, quiet: bool = False) -> Iterator[Tick]:
    """Show a bar on a terminal; elsewhere nothing, so that no control codes end up in a file."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    ) as shown:
        yield Tick(shown, total, words)


def show(labels: Sequence[str], runs: Sequence[tuple[Sequence[str], Report]]) -> None:
    """Print one line for each run, and below it what does not agree, if anything.

    `labels` heads the words that each run begins with.
    """
    console = Console()
    gap = 1 if console.width >= _WIDE else 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap))
    for name in labels:
        table.add_column(name, no_wrap=True)
    for name in ("sent", "stored", "conflicts", "retries", "success", "p50 ms", "p99 ms", "exact"):
        table.add_column(name, justify="right", no_wrap=True)
    for words, report in runs:
        table.add_row(
            *words,
            str(report.sent),
            str(report.stored),
            str(report.conflicts),
            str(report.retries),
            f"{report.success_rate:.1%}",
            f"{report.p50_ms:.0f}",
            f"{report.p99_ms:.0f}",
            "yes" if report.exact else "[bold red]NO[/]",
        )
    console.print(table)
    for words, report in runs:
        for fault in report.faults[:_FAULTS_SHOWN]:
            line = f"{', '.join(words)}: {fault}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
