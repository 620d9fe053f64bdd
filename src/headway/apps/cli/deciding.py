"""What `headway failed` changes: letters are sent again, or removed."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager

import typer

from headway.apps.cli.asking import confirmed
from headway.apps.cli.calling import bus_words, pasteable
from headway.apps.cli.codes import CANNOT_GO_ON, NOT_AS_PROMISED
from headway.apps.cli.engines import on_engine
from headway.apps.cli.failed_there import why_none
from headway.apps.cli.operator import failed_queues
from headway.apps.cli.output import after_a_change
from headway.apps.cli.record import record_of_changes
from headway.apps.cli.screen import bar, many, say_on_ctrl_c
from headway.core.showing import shown
from headway.ports.engine import Engine
from headway.runtime.failed_report import Report

_SKIPPED_SHOWN = 10


def requeue_letters(
    bus: str | None,
    queue: str,
    *,
    limit: int | None,
    ids: Sequence[str] | None,
    error_type: str | None,
    rate: float | None,
    target_queue: str | None,
    superseded: bool,
    without_store: bool,
    reason: str,
    dry_run: bool,
) -> None:
    """Send letters again, with a bar, and say what came of it."""
    so_far, why = Report(what="requeue", queue=queue, dry_run=dry_run), ""

    def tell(report: Report) -> None:
        nonlocal so_far
        so_far = report
        move(report.passed, len(report.chosen))

    async def change(engine: Engine) -> Report:
        nonlocal why
        queues = failed_queues(engine)
        report = await queues.requeue(
            queue,
            limit=limit,
            ids=ids and await queues.complete(queue, ids),
            error_type=error_type,
            rate=rate,
            target_queue=target_queue,
            superseded=superseded,
            without_store=without_store,
            reason=reason,
            dry_run=dry_run,
            on_progress=tell,
        )
        why = await why_none(queues, queue, error_type, report.chosen or ids)
        return report

    with record_of_changes(), say_on_ctrl_c(lambda: _how_far(so_far)), bar("requeueing") as move:
        so_far = on_engine(bus, change)
    with _told(so_far, bus):
        _show(so_far)
    if why:
        typer.echo(why, err=True)


def purge_letters(
    bus: str | None,
    queue: str,
    *,
    limit: int | None,
    ids: Sequence[str] | None,
    error_type: str | None,
    without_store: bool,
    reason: str,
    dry_run: bool,
    ask: bool,
) -> None:
    """Remove letters, after a question, and say what came of it."""
    so_far, why = Report(what="purge", queue=queue, dry_run=dry_run), ""

    def tell(report: Report) -> None:
        nonlocal so_far
        so_far = report
        move(report.passed, len(report.chosen))

    async def change(engine: Engine) -> Report:
        nonlocal why
        queues = failed_queues(engine)
        report = await queues.purge(
            queue,
            limit=limit,
            ids=ids and await queues.complete(queue, ids),
            error_type=error_type,
            without_store=without_store,
            reason=reason,
            dry_run=dry_run,
            before=_ask if ask else None,
            on_progress=tell,
        )
        why = await why_none(queues, queue, error_type, report.chosen or ids)
        return report

    with record_of_changes(), say_on_ctrl_c(lambda: _how_far(so_far)), bar("purging") as move:
        so_far = on_engine(bus, change)
    with _told(so_far, bus):
        _show(so_far)
    if why:
        typer.echo(why, err=True)


def _told(report: Report, bus: str | None) -> AbstractContextManager[None]:
    history = pasteable("failed", "history", report.queue, *bus_words(bus))
    return after_a_change(history, made=report.done > 0 and not report.dry_run)


def _ask(meant: Report) -> None:
    words = f"{many(len(meant.chosen), 'letter')} of {meant.queue}"
    if not sys.stdin.isatty():
        typer.echo(
            f"headway: {words} would be removed for good, and nobody is here to be asked: say "
            "--yes, or look first with --dry-run",
            err=True,
        )
        raise typer.Exit(CANNOT_GO_ON)
    if not confirmed(f"Remove {words} for good?"):
        typer.echo("Nothing was removed.", err=True)
        raise typer.Exit(NOT_AS_PROMISED)


def _show(report: Report) -> None:
    done = {"requeue": "requeued", "purge": "removed"}[report.what]
    would = "would be " * report.dry_run
    typer.echo(
        f"{report.done} of {many(len(report.chosen), 'letter')} of {report.queue} {would}{done}"
    )
    for target, count in sorted(report.targets.items()):
        typer.echo(f"  {count} to {shown(target)}")
    if report.dry_run and report.moved:
        typer.echo(
            f"  {report.moved} to another queue than before: what that queue has had itself, it "
            "will refuse, and the letter stays"
        )
    if report.gone:
        typer.echo(f"  {report.gone} had gone meanwhile")
    for letter in report.missing:
        typer.echo(f"  {shown(letter)} is not in the queue")
    skipped = [*report.skipped, *report.unselected]
    for each in skipped[:_SKIPPED_SHOWN]:
        typer.echo(f"  {shown(each.letter_id)} was skipped: {shown(each.reason)}")
    if len(skipped) > _SKIPPED_SHOWN:
        typer.echo(f"  {len(skipped) - _SKIPPED_SHOWN} more were skipped")
    if skipped or report.missing:
        raise typer.Exit(NOT_AS_PROMISED)


def _how_far(report: Report) -> str:
    done = {"requeue": "requeued", "purge": "removed"}[report.what]
    if not report.chosen:
        return f"no letter was {done}"
    left = len(report.chosen) - report.done
    return (
        f"{report.done} of {many(len(report.chosen), 'letter')} were {done}; "
        f"the other {left} are still in {report.queue}"
    )
