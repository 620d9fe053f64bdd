"""`headway demo uptime`: both runs, the table, the picture, and what must be true of them."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.drawing import bars, columns, minutes, ruler
from headway.apps.cli.file import NewFile
from headway.apps.cli.screen import as_json, bar, say_on_ctrl_c, show_table
from headway.systems.uptime.demo.criteria import Criterion, criteria
from headway.systems.uptime.demo.measured import Line, Measured
from headway.systems.uptime.demo.run import Played, play
from headway.systems.uptime.demo.scenario import Scenario
from headway.systems.uptime.demo.story import STANDS_STILL, panels, picture, shaded

_NEXT = """Next:
  docs/how-to/run-uptime.md: run the consumer yourself (the demo leaves nothing behind)
  docs/how-to/keep-results-in-order.md: the same for your own results
  docs/explanation/how-results-keep-their-order.md: why it works"""
_WIDEST = 78
_MOST_COLUMNS = 90
_NAMES = 9
_HIGH = 3
_STYLES = ("dark_orange3", "dodger_blue2")


def show_uptime(scenario: Scenario, *, picture_file: Path | None, machine: bool) -> None:
    """Run it, and show what came of it. Ends with exit code 1 unless every criterion is met."""
    file = None
    if picture_file is not None:
        file = NewFile(picture_file, option="--picture", force=True, private=False)
        file.check()
    with say_on_ctrl_c(lambda: "nothing is left of it"):
        played = _played(scenario, quiet=machine)
    wanted = criteria(played.plain, played.ordered)
    if file is not None:
        with file.opened() as write:
            write(picture(scenario, played).svg())
    if machine:
        typer.echo(as_json(_figures(scenario, played, wanted), indent=2))
    else:
        _show(scenario, played, wanted)
        if picture_file is not None:
            typer.echo(f"\nThe picture is in {picture_file}")
        typer.echo(f"\n{_NEXT}")
    raise typer.Exit(0 if all(each.met for each in wanted) else NOT_AS_PROMISED)


def _played(scenario: Scenario, *, quiet: bool) -> Played:
    """Run it, with a bar for each way on a terminal, and with lines elsewhere."""
    done = 0
    move: Callable[[int, int | None], None] | None = None

    def begin(way: str) -> None:
        nonlocal move, done
        shown.close()
        done = 0
        words = f"processing {scenario.results} results, {way}"
        if sys.stderr.isatty():
            move = shown.enter_context(bar(words))
        elif not quiet:
            typer.echo(words, err=True)

    def count(results: int) -> None:
        nonlocal done
        done += results
        if move is not None:
            move(done, scenario.results)

    with ExitStack() as shown:
        return play(scenario, on_way=begin, on_results=count)


def _figures(scenario: Scenario, played: Played, wanted: Sequence[Criterion]) -> dict[str, object]:
    return {
        "scenario": scenario,
        "runs": [played.plain.as_dict(), played.ordered.as_dict()],
        "criteria": wanted,
        "met": all(each.met for each in wanted),
    }


def _show(scenario: Scenario, played: Played, wanted: Sequence[Criterion]) -> None:
    typer.echo(_explained(scenario, played) + "\n")
    rows = [
        (name, plain, ordered)
        for (name, plain), (_, ordered) in zip(
            _rows(played.plain), _rows(played.ordered), strict=True
        )
    ]
    ways = [played.plain.way, played.ordered.way]
    show_table(["", *ways], rows, numbers=ways)
    typer.echo()
    console = Console(highlight=False)
    for line in _drawn(scenario, played, min(console.width, _MOST_COLUMNS) - _NAMES - 1):
        console.print(line, soft_wrap=True)
    typer.echo()
    for each in wanted:
        sign = Text("met     ", "green") if each.met else Text("NOT MET ", "bold red")
        console.print(sign + f"{each.wanted}: {each.seen}", soft_wrap=True)


def _explained(scenario: Scenario, played: Played) -> str:
    text = (
        f"{scenario.subscriptions} sites are checked once a minute. {scenario.workers} workers "
        f"process the results in batches; {len(scenario.backlogs)} times nobody does for "
        f"{scenario.backlog // 60} minutes, and then batches overtake one another. In plain "
        "processing a result that is overtaken has been taken for missed by then. Only "
        f"{played.plain.never_came} results really never came. The time is simulated; consumer, "
        "store and sequences are real, on SQLite."
    )
    return textwrap.fill(text, min(_WIDEST, shutil.get_terminal_size().columns - 1))


def _rows(run: Measured) -> Iterator[tuple[str, str]]:
    keeps = run.added > 0
    yield "results that came", str(run.came)
    yield "applied in their order", str(run.applied)
    yield "overtaken, and not applied in time", str(run.not_applied)
    yield "false misses", str(run.false_misses)
    yield "true misses found", f"{run.true_misses} of {run.never_came}"
    yield "held for their turn", str(run.added) if keeps else "-"
    yield "gaps that their result closed", str(run.filled) if keeps else "-"
    yield (
        "gaps given up: by time, by the breaker",
        (f"{run.timeouts}, {run.breakers}" if keeps else "-"),
    )
    yield "held by a key that holds any, on average", f"{run.mean_held:.2f}" if keeps else "-"
    yield "latency: 50 %, 95 %", f"{run.p50:.1f} s, {run.p95:.1f} s"
    yield "real time", f"{run.seconds:.1f} s"


def _drawn(scenario: Scenario, played: Played, width: int) -> Iterator[Text]:
    """Draw every figure as bars over time, each way in rows of its own, on one scale."""
    until = float(scenario.seconds)
    styles = dict(zip((played.plain.way, played.ordered.way), _STYLES, strict=True))
    for title, (unit, lines) in panels(played).items():
        most = max(value for line in lines for _, value in line.points)
        yield Text(f"{title} (at most {most:,.0f}{unit})", "bold")
        for line in lines:
            yield from _bars(line, until, most, width, styles[line.name])
        yield Text(" " * _NAMES + ruler(shaded(scenario), until, width), "bright_black")
    yield Text(" " * _NAMES + minutes(until, width), "bright_black")
    yield Text(" " * _NAMES + f"▒ {STANDS_STILL}", "bright_black")


def _bars(line: Line, until: float, most: float, width: int, style: str) -> Iterator[Text]:
    *upper, lowest = bars(columns(line.points, until, width), most or 1.0, _HIGH)
    for row in upper:
        yield Text(" " * _NAMES + row, style)
    yield Text(f"{line.name:<{_NAMES}}{lowest}", style)
