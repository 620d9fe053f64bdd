"""`headway failed`: letters, and what is decided about them."""

from pathlib import Path
from typing import Annotated

import typer

from headway.apps.cli.options import (
    BusOption,
    DryRunOption,
    HistoryLimitOption,
    JsonOption,
    RawOption,
    ReasonOption,
    YesOption,
    not_empty,
)
from headway.apps.cli.stopping import nothing_begun
from headway.core.errors import ConfigurationError

app = typer.Typer(help="Failed queues: what ended without success.", no_args_is_help=True)

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The failed queue, or its service.")
]
IdsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="Only this dead letter: its id, or the beginning of it if no other begins so; can be "
        "given again.",
    ),
]
ErrorTypeOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Only letters that ended with this error.", callback=not_empty
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="NUMBER", help="At most so many, the oldest first. [default: all]"),
]
WithoutStoreOption = Annotated[
    bool,
    typer.Option(
        "--without-store",
        help="Though their services have a store and HEADWAY_STORE is not set: no books follow.",
    ),
]


@app.command("list")
def list_queues(bus: BusOption = None, as_json: JsonOption = False) -> None:
    """List the failed queues: how many letters each holds, and how many are superseded.

    Superseded are letters whose work was sent anew and done since, by the same key, or whose
    documents were processed, or taken up by another operation. Only the store knows.
    """
    with nothing_begun():
        from headway.apps.cli.looking import show_queues  # noqa: PLC0415 (a fast start)

    show_queues(bus, machine=as_json)


@app.command()
def inspect(  # noqa: PLR0917 (typer gives them by name)
    queue: QueueArgument,
    limit: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="At most so many, the oldest first.")
    ] = 10,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only this dead letter: its id, or a beginning."),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="LETTER", help="Go on after this letter.")
    ] = None,
    error_type: ErrorTypeOption = None,
    traceback: Annotated[bool, typer.Option("--traceback", help="With tracebacks.")] = False,
    raw: RawOption = False,
    bus: BusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show letters, each with its attempts and its event; nothing is changed.

    Secrets are hidden, in the event too: --raw shows them, and export keeps them.
    """
    with nothing_begun():
        from headway.apps.cli.looking import show_some  # noqa: PLC0415 (a fast start)

    if ids and len(ids) > 1:
        raise ConfigurationError(
            f"Invalid --id {ids[-1]!r}: inspect shows one dead letter. Give one --id, or export "
            "several."
        )
    show_some(
        bus,
        queue,
        limit=limit,
        letter_id=ids[0] if ids else None,
        after=after,
        error_type=error_type,
        tracebacks=traceback,
        machine=as_json,
        raw=raw,
    )


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
        typer.Option(
            metavar="NAME",
            help="Send to this queue, which has to take their type. [default: where each came "
            "from]",
            callback=not_empty,
        ),
    ] = None,
    superseded: Annotated[
        bool,
        typer.Option(
            "--superseded",
            help="Those too whose work was done, or whose documents were taken up, since.",
        ),
    ] = False,
    without_store: WithoutStoreOption = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    bus: BusOption = None,
) -> None:
    """Send the original events again, each to the queue that it came from.

    Exit code 0: all of them were sent; 1: some were skipped and are still there.
    """
    with nothing_begun():
        from headway.apps.cli.deciding import requeue_letters  # noqa: PLC0415 (a fast start)

    requeue_letters(
        bus,
        queue,
        limit=limit,
        ids=ids,
        error_type=error_type,
        rate=rate,
        target_queue=target_queue,
        superseded=superseded,
        without_store=without_store,
        reason=reason,
        dry_run=dry_run,
    )


@app.command()
def export(  # noqa: PLR0917 (typer gives them by name)
    queue: QueueArgument,
    output: Annotated[
        str,
        typer.Option(metavar="FILE", help="File to write; -: standard output.", callback=not_empty),
    ] = "-",
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    limit: LimitOption = None,
    ids: IdsOption = None,
    error_type: ErrorTypeOption = None,
    bus: BusOption = None,
) -> None:
    """Write letters as JSON Lines, every field of each; they stay in the queue."""
    with nothing_begun():
        from headway.apps.cli.looking import export_letters  # noqa: PLC0415 (a fast start)

    export_letters(
        bus,
        queue,
        path=None if output == "-" else Path(output),
        force=force,
        limit=limit,
        ids=ids,
        error_type=error_type,
    )


@app.command()
def purge(  # noqa: PLR0917 (typer gives them by name)
    queue: QueueArgument,
    limit: LimitOption = None,
    ids: IdsOption = None,
    error_type: ErrorTypeOption = None,
    without_store: WithoutStoreOption = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    bus: BusOption = None,
) -> None:
    """Remove letters for good; asks first."""
    with nothing_begun():
        from headway.apps.cli.deciding import purge_letters  # noqa: PLC0415 (a fast start)

    purge_letters(
        bus,
        queue,
        limit=limit,
        ids=ids,
        error_type=error_type,
        without_store=without_store,
        reason=reason,
        dry_run=dry_run,
        ask=not yes,
    )


@app.command()
def history(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="QUEUE", help="The failed queue, or its service. [default: all]"),
    ] = None,
    limit: HistoryLimitOption = 20,
    bus: BusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who requeued or purged dead letters, when, which and why.

    The store keeps the newest 10,000 changes; without a store, the queue headway.history does.
    """
    with nothing_begun():
        from headway.apps.cli.looking import show_history  # noqa: PLC0415 (a fast start)

    show_history(bus, queue, limit=limit, machine=as_json)
