"""How the history of changes looks to a person, and to machines."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from headway.apps.cli.screen import as_json, harmless, show_indented, show_table, when
from headway.core.writes import Document
from headway.runtime.history import Outcome, Subject

_NOTHING = {
    Subject.QUEUE: "No dead letter was requeued or purged yet.",
    Subject.COLLECTION: "No document was changed yet.",
    Subject.SEQUENCES: "No key was drained yet.",
    Subject.UNROUTED: "No unrouted event was routed or purged yet.",
}
_HEADINGS = {
    Subject.QUEUE: ("queue", "letters"),
    Subject.COLLECTION: ("collection", "documents"),
    Subject.SEQUENCES: ("name", "keys"),
    Subject.UNROUTED: ("types", "events"),
}
_GAP, _BETWEEN = 2, 3
"""Columns before a continuation, and between columns of a table."""
_FOR_A_CHOICE = 24
"""A table is shown where so many columns are left for the selection; else paragraphs."""


def show_changes(found: Sequence[Document], subject: Subject, *, machine: bool) -> None:
    """Show changes, the newest first."""
    if machine:
        typer.echo(as_json(found, indent=2))
        return
    if not found:
        typer.echo(_NOTHING[subject])
        return
    rows: list[tuple[str, ...]] = [
        (
            when(entry.get("at")),
            str(entry.get("who", "")),
            str(entry.get("what", "")),
            str(entry.get(subject.value, "")),
            extent(entry),
            str(entry.get("selection", "")),
            str(entry.get("reason", "")),
        )
        for entry in found
    ]
    headings = ["when", "who", "what", *_HEADINGS[subject], "which", "why"]
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    console = Console(highlight=False)
    *widths, longest = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    room = console.width - sum(width + _BETWEEN for width in widths)
    if room >= min(longest, _FOR_A_CHOICE):
        show_table(headings, rows, whole=headings[:-1])
    else:
        for number, (entry, row) in enumerate(zip(found, rows, strict=True)):
            if number:
                console.print()
            _show_change(console, entry, row)
    _explain(found)


def extent(entry: Mapping[str, Any]) -> str:
    """Say how many were changed, of how many."""
    done, chosen = entry.get("done"), entry.get("chosen")
    match entry.get("outcome"):
        case Outcome.INTENDED:
            return f"? of {chosen}"
        case Outcome.STOPPED:
            return f"{done} of {chosen}, stopped"
        case _:
            return f"{done} of {chosen}"


def _show_change(console: Console, entry: Mapping[str, Any], row: Sequence[str]) -> None:
    """Show one change as a paragraph, where a table would fold every column."""
    at, who, what, name, number, which, *why = row
    head = Text(f"{at}  ", "bold") + harmless(who)
    show_indented(console, head, 0)
    show_indented(console, harmless(f"{what} of {name}: {number}"), _GAP)
    if which:
        show_indented(console, harmless(which), _GAP)
    if any(why):
        show_indented(console, harmless(f"because: {why[0]}"), _GAP)
    if entry.get("error"):
        show_indented(console, harmless(f"stopped by: {entry['error']}"), _GAP)


def _explain(found: Sequence[Document]) -> None:
    if any(entry.get("outcome") == Outcome.INTENDED for entry in found):
        typer.echo(
            "\n?: it is going on, or its process was killed: some may be changed. Repeat the "
            "command; what was done is not done twice."
        )
