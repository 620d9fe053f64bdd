"""Progress while it runs, and the table of figures at its end."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from headway.apps.cli.codes import INTERRUPTED
from headway.systems.ledger.load.run import Report

_FAULTS_SHOWN = 5
_WIDE = 100
_ALL_COLUMNS = 80

_FIGURES: dict[str, Callable[[Report], str]] = {
    "sent": lambda report: str(report.sent),
    "stored": lambda report: str(report.stored),
    "conflicts": lambda report: str(report.conflicts),
    "retries": lambda report: str(report.retries),
    "success": lambda report: f"{report.success_rate:.1%}",
    "p50 ms": lambda report: f"{report.p50_ms:.0f}",
    "p99 ms": lambda report: f"{report.p99_ms:.0f}",
    "exact": lambda report: "yes" if report.exact else "[bold red]NO[/]",
}
_LESS_NEEDED = ("retries", "p50 ms", "p99 ms")


class Tick:
    """Moves the bar on by one; `say` changes the words beside it, or is a line without a bar."""

    def __init__(self, progress: Progress, total: int, words: str) -> None:
        self._progress = progress
        self._task = progress.add_task(words, total=total)
        self._line(words)

    def __call__(self) -> None:
        self._progress.advance(self._task)

    def say(self, words: str) -> None:
        self._progress.update(self._task, description=words)
        self._line(words)

    def _line(self, words: str) -> None:
        if self._progress.disable:
            self._progress.console.print(words, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def progress(total: int, words: str, *, quiet: bool = False) -> Iterator[Tick]:
    """Show a bar on a terminal, elsewhere lines, so that no control codes end up in a file.

    Ctrl-C in the block is answered by one word.
    """
    console = Console(stderr=True, quiet=quiet)
    with (
        _one_word_for_ctrl_c(),
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        ) as shown,
    ):
        yield Tick(shown, total, words)


@contextlib.contextmanager
def _one_word_for_ctrl_c() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(INTERRUPTED) from None


def show(labels: Sequence[str], runs: Sequence[tuple[Sequence[str], Report]]) -> None:
    """Print one line for each run, and below it what does not agree, if anything.

    `labels` heads the words that each run begins with.
    """
    console = Console()
    gap = 1 if console.width >= _WIDE else 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap))
    for name in labels:
        table.add_column(name, no_wrap=True)
    left_out = () if console.width >= _ALL_COLUMNS else _LESS_NEEDED
    shown = [name for name in _FIGURES if name not in left_out]
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for words, report in runs:
        table.add_row(*words, *(_FIGURES[name](report) for name in shown))
    console.print(table)
    for words, report in runs:
        for fault in report.faults[:_FAULTS_SHOWN]:
            line = f"{', '.join(words)}: {fault}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
