"""The demonstration while it goes on: its story line by line, and below it how far all is."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headway.apps.cli.screen import many
from headway.systems.consensus.demo.story import Line, Story

_WIDEST = 100
_LABEL = 14
"""Columns before the words of a line: the time and the fault."""
_EVERY = 5.0
"""Seconds between two lines of figures, where there is no terminal."""
_SIGNS = {"plain": ("·", ""), "fault": ("✗", "bold red"), "answer": ("✓", "green")}


@contextmanager
def shown(*, quiet: bool) -> Iterator[Story]:
    """Show a story as it is told: on a terminal with bars, elsewhere in lines."""
    console = Console(quiet=quiet, highlight=False)
    if console.is_terminal and not quiet:
        story = Story(lambda line: console.print(_line(line, console.width)))
        with Live(_Bars(story), console=console, refresh_per_second=5):
            yield story
        return
    figures = _EVERY

    def plainly(line: Line) -> None:
        nonlocal figures
        if line.at >= figures:
            figures = line.at + _EVERY
            console.print(_in_words(story), soft_wrap=True)
        console.print(_line(line, None), soft_wrap=True)

    story = Story(plainly)
    yield story


def clock(seconds: float) -> str:
    """Write how long something goes on.

    >>> clock(65.4)
    '1:05'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _line(line: Line, width: int | None) -> Text:
    sign, style = _SIGNS[line.kind]
    words = [line.words]
    if width is not None:  # what goes into a file stays whole
        words = textwrap.wrap(line.words, max(min(width, _WIDEST) - _LABEL - 3, 20))
    lead = Text(f"{clock(line.at):>5} ", "bright_black") + Text(f"{line.about:<8}", style)
    text = lead + Text(f"{sign} {words[0]}", style)
    for more in words[1:]:
        text += Text(f"\n{'':{_LABEL + 2}}{more}", style)
    return text


def _in_words(story: Story) -> str:
    stages = (f"{each.name} {each.done}/{each.total}" for each in story.stages())
    return f"{clock(story.seconds):>5}           {', '.join(stages)}; {_figures(story)}"


def _figures(story: Story) -> str:
    seen = story.seen
    waiting = 0 if seen is None else sum(seen.waiting.values())
    parked = 0 if seen is None else seen.parked
    letters = 0 if seen is None else seen.letters
    return (
        f"{many(waiting, 'event')} waiting, {parked} of them parked; "
        f"{many(story.retries, 'retry', 'retries')}; {many(letters, 'letter')}"
    )


class _Bars:
    """How far each stage is, drawn anew whenever it is looked at."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def __rich_console__(self, console: Console, _options: ConsoleOptions) -> RenderResult:
        bars = Table.grid(padding=(0, 2, 0, 0))
        wide = max(min(console.width, _WIDEST) - 44, 10)
        for each in self._story.stages():
            bars.add_row(
                Text(f"  {each.name}"),
                ProgressBar(total=max(each.total, 1), completed=each.done, width=wide),
                Text(f"{each.done:>3}/{each.total} {each.things}"),
            )
        time = Text(f"{clock(self._story.seconds):>5}  ", "bright_black")
        yield Group(Text(), bars, time + Text(_figures(self._story), "bright_black"))
