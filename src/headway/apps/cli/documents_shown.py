"""How decisions about documents, and the record of them, look to a person."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from headway.apps.cli.history import extent
from headway.apps.cli.screen import many, show_table, when
from headway.core.decision import Decision, archive_of
from headway.core.showing import shown
from headway.runtime.documents_report import DocumentsReport

_KINDS_SHOWN = 5
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


def show_archivings(notes: Sequence[Mapping[str, Any]]) -> None:
    """Say by whom documents of an archive were put there, the latest first."""
    if not notes:
        return
    typer.echo("\nThe latest changes by which documents came here:")
    for note in notes:
        by = f"archived by {note.get('who')} on {when(note.get('at'))}"
        typer.echo(shown(f"  {extent(note)} {by}: {note.get('selection')}"))
