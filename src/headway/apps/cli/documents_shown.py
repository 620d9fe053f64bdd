"""How decisions about documents, and the record of them, look to a person."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console

from headway.apps.cli.screen import harmless, many, show_indented, show_table, when
from headway.core.decision import Decision, archive_of
from headway.core.showing import shown
from headway.runtime.documents_history import INTENDED
from headway.runtime.documents_report import DocumentsReport

_KINDS_SHOWN = 5
_GAP = 2
_FOR_A_CHOICE = 24
"""A table is shown where so many columns are left for what was chosen; else paragraphs."""
NO_ERROR = "no error known"

_DONE = {
    Decision.RESET: "reset to pending",
    Decision.RETRY: "scheduled",
    Decision.PURGE: "removed for good",
    Decision.ARCHIVE: "moved to {archive}",
    Decision.RESTORE: "brought back from {archive}",
}
_BACK = {Decision.RESET, Decision.RETRY, Decision.RESTORE}


def show_report(report: DocumentsReport, *, sweep: str | None, nothing: str) -> None:
    """Say what came of a decision, or what would come of it.

    `sweep` is the command that sweeps the collection; None: nobody does. `nothing` is what is said
    if there is no document in it at all.
    """
    name = shown(report.collection)
    words = "would be " * report.dry_run + _done(report.decision, report.collection)
    if report.chosen:
        typer.echo(f"{report.done} of {many(report.meant, 'document')} of {name} {words}")
    elif not (report.refused or report.missing):
        words = f"There is no such document in {_where(report)}: {shown(report.selection)}"
        typer.echo(nothing or words)
    if report.dry_run:
        show_meant(report)
    if report.meanwhile:
        typer.echo(f"  {report.meanwhile} changed meanwhile, left as they are")
    _show_refused(report)
    for one in report.missing:
        typer.echo(f"  {shown(one)} is not in {_where(report)}")
    if nothing and report.missing:
        typer.echo(nothing)
    if report.done and report.decision in _BACK:
        _show_when(report, sweep)
    if report.dry_run and report.chosen:
        typer.echo("Nothing was changed: this was a dry run.")


def _where(report: DocumentsReport) -> str:
    is_restore = report.decision is Decision.RESTORE
    return shown(archive_of(report.collection) if is_restore else report.collection)


def show_meant(report: DocumentsReport, *, err: bool = False) -> None:
    """Show which documents are meant: the first by name, all by state and error."""
    if not report.chosen:
        return
    rows = [
        (each.document_id, each.state, str(each.attempts), each.last_error or "-")
        for each in report.first
    ]
    typer.echo(err=err)
    show_table(["id", "status", "attempts", "last error"], rows, numbers=["attempts"], err=err)
    if report.chosen > len(rows):
        typer.echo(f"and {report.chosen - len(rows)} more", err=err)
    typer.echo(err=err)
    if report.chosen > len(rows):
        typer.echo(f"  by status: {kinds(report.states)}", err=err)
        typer.echo(f"  by error:  {kinds(report.errors)}", err=err)


def kinds(counted: Counter[str]) -> str:
    """Say how many there are of which kind, the most frequent first."""
    most = counted.most_common(_KINDS_SHOWN)
    rest = counted.total() - sum(count for _, count in most)
    said = [f"{count} {shown(kind) or NO_ERROR}" for kind, count in most]
    return ", ".join(said + [f"{rest} others"] * (rest > 0))


def _done(decision: Decision, collection: str) -> str:
    return _DONE[decision].format(archive=shown(archive_of(collection)))


def _show_refused(report: DocumentsReport) -> None:
    for each in report.first_refused:
        typer.echo(f"  {shown(each.document_id)} was refused: {each.reason}")
    rest = report.refused.total() - len(report.first_refused)
    if rest > 0:
        typer.echo(f"  and {rest} more; in all:")
        for reason, count in report.refused.most_common():
            typer.echo(f"  {count} refused: {reason}")


def _show_when(report: DocumentsReport, sweep: str | None) -> None:
    takes = "would take" if report.dry_run else "takes"
    if sweep is None:
        typer.echo(
            f"No sweep {takes} them: no handler of these services has documents= for "
            f"{shown(report.collection)}"
        )
    elif report.at is None:
        typer.echo(f"The next sweep {takes} them; to have it now: {sweep}")
    else:
        typer.echo(f"The first sweep after {when(report.at)} {takes} them.")
    if report.later:
        typer.echo(
            f"  {report.later} of them later: a worker may still have them, until their lease is "
            "over; without one, until nothing has moved for as long as "
            "RETRY_JOB_STUCK_THRESHOLD_HOURS says"
        )


def how_far(decision: Decision, collection: str, report: DocumentsReport | None) -> str:
    """Say what an interruption left behind."""
    name, words = shown(collection), _done(decision, collection)
    if report is None or not report.planned:
        return f"no document of {name} was changed"
    return (
        f"{report.done} of {many(report.chosen, 'document')} of {name} were {words}, and perhaps "
        "the next few; say the same again, and the rest is done too"
    )


def show_changes(notes: Sequence[Mapping[str, Any]]) -> None:
    """Show the record of changes, the newest first."""
    if not notes:
        typer.echo("Nobody has changed documents here yet.")
        return
    rows = [
        (
            when(note.get("at")),
            str(note.get("who", "")),
            str(note.get("what", "")),
            str(note.get("collection", "")),
            _documents(note),
            str(note.get("selection", "")),
        )
        for note in notes
    ]
    headings = ["when", "who", "what", "collection", "documents", "which"]
    console = Console(highlight=False)
    *widths, longest = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    if console.width - sum(width + _GAP for width in widths) >= min(longest, _FOR_A_CHOICE):
        show_table(headings, rows, whole=headings[:-1])
    else:
        for row in rows:
            _show_change(console, *row)
    if any(note.get("outcome") == INTENDED for note in notes):
        typer.echo(
            "\n?: it was killed, or is going on: some may be changed. Say the same again; what was "
            "done is not done twice."
        )


def show_archivings(notes: Sequence[Mapping[str, Any]]) -> None:
    """Say by whom documents of an archive were put there, the latest first."""
    if not notes:
        return
    typer.echo("\nThe latest changes by which documents came here:")
    for note in notes:
        by = f"archived by {note.get('who')} on {when(note.get('at'))}"
        typer.echo(shown(f"  {_documents(note)} {by}: {note.get('selection')}"))


def _show_change(console: Console, *cells: str) -> None:
    """Show one change in a paragraph, where a row of a table would be folded in every column."""
    at, who, what, collection, documents, which = cells
    show_indented(console, harmless(f"{at}  {who}"), 0)
    show_indented(console, harmless(f"{what} of {collection}: {documents}"), _GAP)
    if which:
        show_indented(console, harmless(which), _GAP)


def _documents(note: Mapping[str, Any]) -> str:
    done, chosen = note.get("done"), note.get("chosen")
    match note.get("outcome"):
        case "intended":
            return f"? of {chosen}"
        case "stopped":
            return f"{done} of {chosen}, stopped"
        case _:
            return f"{done} of {chosen}"
