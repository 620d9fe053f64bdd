"""`headway failed`: letters, and what is decided about them."""

import getpass
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headway.apps.cli.codes import CANNOT_GO_ON, NOT_AS_PROMISED
from headway.apps.cli.engines import BusOption, on_engine
from headway.apps.cli.exporting import Export
from headway.apps.cli.letters import show_letters
from headway.apps.cli.record import record_of_changes
from headway.apps.cli.screen import as_json, bar, many, say_on_ctrl_c, show_table, when
from headway.assembly.retrying import CLOCK
from headway.core.showing import shown
from headway.ports.engine import Engine
from headway.ports.letters import FailedQueue
from headway.runtime.failed import FailedQueues
from headway.runtime.failed_report import Report

app = typer.Typer(help="Failed queues: what ended without success.", no_args_is_help=True)

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The failed queue, or its service.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="A list of objects, for machines.")]
IdsOption = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="LETTER", help="Only this letter; can be given again."),
]
ErrorTypeOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only letters that ended with this error.")
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="NUMBER", help="At most so many, the oldest first. [default: all]"),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]

_SKIPPED_SHOWN = 10


def _queues(engine: Engine) -> FailedQueues:
    return FailedQueues(engine, CLOCK, who=_who())


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        return f"user {os.getuid()}"


@app.command("list")
def list_queues(bus: BusOption = None, as_json_: JsonOption = False) -> None:
    """List the failed queues and how many letters each holds."""
    found = on_engine(bus, lambda engine: _queues(engine).list())
    if as_json_:
        typer.echo(as_json([_summed_up(each) for each in found], indent=2))
    elif found:
        rows = [(q.name, str(q.letters), when(q.oldest), when(q.newest)) for q in found]
        show_table(["queue", "letters", "oldest", "newest"], rows, numbers=["letters"])
    else:
        typer.echo("There is no failed queue yet: an engine gets them when services are started.")


def _summed_up(queue: FailedQueue) -> dict[str, object]:
    found = asdict(queue)
    return {"queue": found.pop("name"), **found}


@app.command()
def inspect(  # noqa: PLR0917 (typer gives them by name)
    queue: QueueArgument,
    limit: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="At most so many, the oldest first.")
    ] = 10,
    letter_id: Annotated[
        str | None, typer.Option("--id", metavar="LETTER", help="Only this letter.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="LETTER", help="Go on after this letter.")
    ] = None,
    error_type: ErrorTypeOption = None,
    traceback: Annotated[bool, typer.Option("--traceback", help="With tracebacks.")] = False,
    bus: BusOption = None,
    as_json_: JsonOption = False,
) -> None:
    """Show letters, each with its attempts and its event; nothing is changed."""
    found = on_engine(
        bus,
        lambda engine: _queues(engine).inspect(
            queue, limit=limit, after=after, letter_id=letter_id, error_type=error_type
        ),
    )
    if as_json_:
        typer.echo(as_json(found, indent=2))
        return
    show_letters(found, tracebacks=traceback)
    if len(found) == limit:
        typer.echo(f"There may be more: --after {found[-1].letter_id}, or a larger --limit.")
    elif not found:
        typer.echo("No letter there fits.")


@app.command()
def requeue(  # noqa: PLR0917 (typer gives them by name)
    queue: QueueArgument,
    limit: LimitOption = None,
    ids: IdsOption = None,
    error_type: ErrorTypeOption = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="At most so many in a second. [default: no limit]"),
    ] = None,
    target_queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Send to this queue. [default: where each came from]"),
    ] = None,
    dry_run: DryRunOption = False,
    bus: BusOption = None,
) -> None:
    """Send the original events again, each to the queue that it came from.

    Exit code 0: all of them were sent; 1: some were skipped and are still there.
    """
    so_far = Report(what="requeue", queue=queue, dry_run=dry_run)

    with record_of_changes(), say_on_ctrl_c(lambda: _how_far(so_far)), bar("requeueing") as move:

        def tell(report: Report) -> None:
            nonlocal so_far
            so_far = report
            move(report.passed, len(report.chosen))

        so_far = on_engine(
            bus,
            lambda engine: _queues(engine).requeue(
                queue,
                limit=limit,
                ids=ids or (),
                error_type=error_type,
                rate=rate,
                target_queue=target_queue,
                dry_run=dry_run,
                on_progress=tell,
            ),
        )
    _show(so_far)


@app.command()
def export(  # noqa: PLR0917 (typer gives them by name)
    queue: QueueArgument,
    output: Annotated[
        str, typer.Option(metavar="FILE", help="File to write; -: standard output.")
    ] = "-",
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    limit: LimitOption = None,
    ids: IdsOption = None,
    error_type: ErrorTypeOption = None,
    bus: BusOption = None,
) -> None:
    """Write letters as JSON Lines, every field of each; they stay in the queue."""
    into = Export(None if output == "-" else Path(output), force=force)

    async def write(engine: Engine) -> None:
        queues = _queues(engine)
        name = await queues.find(queue)
        of = sum(each.letters for each in await queues.list() if each.name == name)
        found = queues.export(name, limit=limit, ids=ids or (), error_type=error_type)
        async for letter in found:
            into.write(as_json(letter))
            move(into.lines, min(of, limit or of))

    with say_on_ctrl_c(into.how_far), bar("exporting") as move, into:
        on_engine(bus, write)
    if into.path is not None:
        typer.echo(f"{many(into.lines, 'letter')} written to {into.path}", err=True)


@app.command()
def purge(  # noqa: PLR0917 (typer gives them by name)
    queue: QueueArgument,
    limit: LimitOption = None,
    ids: IdsOption = None,
    error_type: ErrorTypeOption = None,
    dry_run: DryRunOption = False,
    yes: Annotated[bool, typer.Option("--yes", "--confirm", help="Do not ask.")] = False,
    bus: BusOption = None,
) -> None:
    """Remove letters for good; asks first."""
    so_far = Report(what="purge", queue=queue, dry_run=dry_run)

    def tell(report: Report) -> None:
        nonlocal so_far
        so_far = report
        move(report.passed, len(report.chosen))

    async def change(engine: Engine) -> Report:
        queues = _queues(engine)
        meant = await queues.purge(
            queue, limit=limit, ids=ids or (), error_type=error_type, dry_run=True
        )
        if dry_run or not meant.chosen:
            return meant
        if not yes:
            _ask(meant)
        # Exactly what was counted: not what has come since.
        report = await queues.purge(
            meant.queue, ids=meant.chosen, error_type=error_type, on_progress=tell
        )
        report.gone += len(report.missing)
        report.missing = meant.missing
        return report

    with record_of_changes(), say_on_ctrl_c(lambda: _how_far(so_far)), bar("purging") as move:
        so_far = on_engine(bus, change)
    _show(so_far)


def _ask(meant: Report) -> None:
    words = f"{many(len(meant.chosen), 'letter')} of {meant.queue}"
    if not sys.stdin.isatty():
        typer.echo(
            f"headway: {words} would be removed for good, and nobody is here to be asked: say "
            "--yes, or look first with --dry-run",
            err=True,
        )
        raise typer.Exit(CANNOT_GO_ON)
    if not typer.confirm(f"Remove {words} for good?", err=True):
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
    if report.gone:
        typer.echo(f"  {report.gone} had gone meanwhile")
    for letter in report.missing:
        typer.echo(f"  {shown(letter)} is not in the queue")
    for each in report.skipped[:_SKIPPED_SHOWN]:
        typer.echo(f"  {shown(each.letter_id)} was skipped: {shown(each.reason)}")
    if len(report.skipped) > _SKIPPED_SHOWN:
        typer.echo(f"  {len(report.skipped) - _SKIPPED_SHOWN} more were skipped")
    if report.skipped or report.missing:
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
