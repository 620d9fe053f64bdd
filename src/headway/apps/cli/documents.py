"""`headway documents`: what is stuck or was given up, and what is decided about it."""

from pathlib import Path
from typing import Annotated

import typer

from headway.apps.cli.options import (
    BusOption,
    DryRunOption,
    HistoryLimitOption,
    JsonOption,
    ReasonOption,
    YesOption,
)
from headway.apps.cli.stopping import nothing_begun
from headway.core.decision import Decision

app = typer.Typer(help="Documents: what is stuck or was given up.", no_args_is_help=True)

CollectionArgument = Annotated[
    str, typer.Argument(metavar="COLLECTION", help="The collection, such as messages.")
]
IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Only these documents.")
]
ServicesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--service",
        metavar="MODULE:SERVICE",
        help="Who works on it, and how; can be given again. [default: HEADWAY_SERVICES]",
    ),
]
EverythingOption = Annotated[bool, typer.Option("--all", help="All of them.")]
GivenUpOption = Annotated[bool, typer.Option("--all", help="All that were given up.")]
StatusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--status", metavar="STATUS", help="Only those with this status; can be given again."
    ),
]
ErrorOption = Annotated[
    str | None,
    typer.Option("--error", metavar="TYPE", help="Only those whose last error was of this type."),
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="NUMBER", help="At most so many, by their ids. [default: all]"),
]
StuckOption = Annotated[
    bool,
    typer.Option(
        "--stuck",
        help="The IDs even if they were not given up, unless somebody may have them: for those of "
        "which no event can be made.",
    ),
]
_AT = "Not before this time: YYYY-MM-DDTHH:MM (UTC), 30m, 2h, 1d, now."
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help=f"{_AT} [default: the next sweep]")
]


@app.command()
def stuck(
    collection: CollectionArgument,
    service: ServicesOption = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Name at most so many of each.")
    ] = 20,
    bus: BusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is stuck, given up or failed permanently, and what a sweep would do.

    Nothing is changed.
    """
    with nothing_begun():
        from headway.apps.cli.documents_looking import show_stuck  # noqa: PLC0415 (a fast start)

    show_stuck(bus, collection, service or (), limit=limit, machine=as_json)


@app.command()
def reset(  # noqa: PLR0917 (typer gives them by name)
    collection: CollectionArgument,
    ids: IdsArgument = None,
    everything: GivenUpOption = False,
    status: StatusOption = None,
    error: ErrorOption = None,
    limit: LimitOption = None,
    at: AtOption = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    service: ServicesOption = None,
    bus: BusOption = None,
) -> None:
    """Let documents begin anew, with all their attempts: when the fault is mended.

    Of those without an ID, the ones that were given up; --status failed for those that failed.
    """
    with nothing_begun():
        from headway.apps.cli.documents_deciding import Order, decide  # noqa: PLC0415 (a fast start)

    order = Order(
        decision=Decision.RESET,
        collection=collection,
        ids=ids,
        everything=everything,
        statuses=status or (),
        error_type=error,
        limit=limit,
        at=at,
        reason=reason,
        dry_run=dry_run,
        services=service or (),
    )
    decide(bus, order)


@app.command()
def retry(  # noqa: PLR0917 (typer gives them by name)
    collection: CollectionArgument,
    at: Annotated[str, typer.Option("--at", metavar="TIME", help=_AT)],
    ids: IdsArgument = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that failed, permanently too.")
    ] = False,
    error: ErrorOption = None,
    limit: LimitOption = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    service: ServicesOption = None,
    bus: BusOption = None,
) -> None:
    """Say when the next attempt of documents is made; attempts so far stay counted."""
    with nothing_begun():
        from headway.apps.cli.documents_deciding import Order, decide  # noqa: PLC0415 (a fast start)

    order = Order(
        decision=Decision.RETRY,
        collection=collection,
        ids=ids,
        everything=everything,
        error_type=error,
        limit=limit,
        at=at,
        reason=reason,
        dry_run=dry_run,
        services=service or (),
    )
    decide(bus, order)


@app.command()
def export(  # noqa: PLR0917 (typer gives them by name)
    collection: CollectionArgument,
    ids: IdsArgument = None,
    status: StatusOption = None,
    error: ErrorOption = None,
    limit: LimitOption = None,
    output: Annotated[
        str, typer.Option(metavar="FILE", help="File to write; -: standard output.")
    ] = "-",
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    service: ServicesOption = None,
    bus: BusOption = None,
) -> None:
    """Write documents as JSON Lines, every field of each; they stay where they are."""
    with nothing_begun():
        from headway.apps.cli.documents_looking import export_documents  # noqa: PLC0415 (a fast start)

    export_documents(
        bus,
        collection,
        service or (),
        path=None if output == "-" else Path(output),
        force=force,
        limit=limit,
        ids=ids,
        statuses=status or (),
        error_type=error,
    )


@app.command()
def purge(  # noqa: PLR0917 (typer gives them by name)
    collection: CollectionArgument,
    ids: IdsArgument = None,
    everything: GivenUpOption = False,
    error: ErrorOption = None,
    limit: LimitOption = None,
    stuck: StuckOption = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    service: ServicesOption = None,
    bus: BusOption = None,
) -> None:
    """Remove documents that were given up, for good; asks first, and refuses all others."""
    with nothing_begun():
        from headway.apps.cli.documents_deciding import Order, decide  # noqa: PLC0415 (a fast start)

    order = Order(
        decision=Decision.PURGE,
        collection=collection,
        ids=ids,
        everything=everything,
        error_type=error,
        limit=limit,
        stuck=stuck,
        reason=reason,
        dry_run=dry_run,
        ask=not yes,
        services=service or (),
    )
    decide(bus, order)


@app.command()
def archive(  # noqa: PLR0917 (typer gives them by name)
    collection: CollectionArgument,
    ids: IdsArgument = None,
    everything: GivenUpOption = False,
    error: ErrorOption = None,
    limit: LimitOption = None,
    stuck: StuckOption = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    service: ServicesOption = None,
    bus: BusOption = None,
) -> None:
    """Move documents that were given up to COLLECTION_dead_letter, which nobody sweeps."""
    with nothing_begun():
        from headway.apps.cli.documents_deciding import Order, decide  # noqa: PLC0415 (a fast start)

    order = Order(
        decision=Decision.ARCHIVE,
        collection=collection,
        ids=ids,
        everything=everything,
        error_type=error,
        limit=limit,
        stuck=stuck,
        reason=reason,
        dry_run=dry_run,
        services=service or (),
    )
    decide(bus, order)


@app.command()
def restore(  # noqa: PLR0917 (typer gives them by name)
    collection: CollectionArgument,
    ids: IdsArgument = None,
    everything: EverythingOption = False,
    error: ErrorOption = None,
    limit: LimitOption = None,
    at: AtOption = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    service: ServicesOption = None,
    bus: BusOption = None,
) -> None:
    """Bring documents back from COLLECTION_dead_letter: pending, with all their attempts."""
    with nothing_begun():
        from headway.apps.cli.documents_deciding import Order, decide  # noqa: PLC0415 (a fast start)

    order = Order(
        decision=Decision.RESTORE,
        collection=collection,
        ids=ids,
        everything=everything,
        error_type=error,
        limit=limit,
        at=at,
        reason=reason,
        dry_run=dry_run,
        services=service or (),
    )
    decide(bus, order)


@app.command()
def history(
    collection: Annotated[
        str | None,
        typer.Argument(metavar="COLLECTION", help="Only of this collection. [default: all]"),
    ] = None,
    limit: HistoryLimitOption = 20,
    bus: BusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who changed which documents, when and why, and what came of it.

    The store keeps the newest 10,000 changes.
    """
    with nothing_begun():
        from headway.apps.cli.documents_looking import show_history  # noqa: PLC0415 (a fast start)

    show_history(bus, collection, limit=limit, machine=as_json)
