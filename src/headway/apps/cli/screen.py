"""What people see: text that can do no harm, tables, bars, and a word when they press Ctrl-C."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from headway.apps.cli.codes import INTERRUPTED
from headway.core.showing import shown

# What JSON may hold as it is, and what a terminal obeys or turns around all the same.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def harmless(text: str) -> Text:
    """Give a text that says nothing to the terminal itself."""
    return Text(shown(text))


def as_json(value: Any, *, indent: int = 0) -> str:
    """Write JSON whose every character is visible; on one line, unless it is indented."""
    written = msgspec.json.encode(value)
    if indent:
        written = msgspec.json.format(written, indent=indent)
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", written.decode())


def when(instant: object) -> str:
    """Write an instant to the second, in UTC; what is none is given back as it is."""
    if instant is None:
        return "-"
    try:
        at = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
        if not isinstance(at, datetime):
            return str(at)
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError):
        return str(instant)


def many(count: int, noun: str, nouns: str = "") -> str:
    """Count things in words.

    >>> many(1, "letter"), many(2, "letter"), many(0, "retry", "retries")
    ('1 letter', '2 letters', '0 retries')
    """
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def show_indented(console: Console, text: Text, by: int, *, first: Text | None = None) -> None:
    """Print a text beside `first`, or beside nothing; lines that are wrapped stand below it.

    Only a terminal has a width to wrap at: what goes into a file or another program stays whole.
    """
    lead = first or Text()
    lines = text.wrap(console, max(console.width - by, 20)) if console.is_terminal else [text]
    for line in lines or [Text()]:
        line.rstrip()
        lead.pad_right(by - len(lead))
        console.print(lead + line, soft_wrap=True)
        lead = Text()


def show_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    whole: Sequence[str] = (),
    err: bool = False,
) -> None:
    """Print rows under headings; `numbers` stand to the right, what is `whole` is not folded."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for name in headings:
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name in whole)
    for row in rows:
        table.add_row(*map(harmless, row))
    Console(stderr=err).print(table)


@contextlib.contextmanager
def bar(words: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar for many steps on a terminal; call what is given with how far, of how many.

    None: nobody knows of how many.
    """
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = progress.add_task(words, total=None)

    def move(to: int, of: int | None) -> None:
        # Not before there is something to show: it would wipe out whatever is asked first.
        if of is None or of > 1:
            progress.start()
            progress.update(task, completed=to, total=of)

    try:
        yield move
    finally:
        progress.stop()


@contextlib.contextmanager
def say_on_ctrl_c(how_far: Callable[[], str]) -> Iterator[None]:
    """Answer Ctrl-C with how far it got."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"stopped: {how_far()}", err=True)
        raise typer.Exit(INTERRUPTED) from None
