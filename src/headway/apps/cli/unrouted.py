"""`headway unrouted`: events that no service takes, and what is decided about them."""

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
)
from headway.apps.cli.stopping import nothing_begun

app = typer.Typer(
    help="Unrouted events: published, and of a type that no service takes.", no_args_is_help=True
)

TypesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TYPE]...", help="Event types. [default: all]")
]


@app.command("list")
def list_types(bus: BusOption = None, as_json: JsonOption = False) -> None:
    """List the event types that no service takes, with the number and age of their events."""
    with nothing_begun():
        from headway.apps.cli.unrouted_events import show_types  # noqa: PLC0415 (a fast start)

    show_types(bus, machine=as_json)


@app.command()
def show(
    event_type: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="Only this type. [default: all]")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="At most so many, the oldest first.")
    ] = 10,
    raw: RawOption = False,
    bus: BusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show unrouted events; nothing is changed.

    Secrets are hidden, in the event too: --raw shows them.
    """
    with nothing_begun():
        from headway.apps.cli.unrouted_events import show_events  # noqa: PLC0415 (a fast start)

    show_events(bus, event_type, limit=limit, raw=raw, machine=as_json)


@app.command()
def route(
    types: TypesArgument = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    bus: BusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move events whose type has a queue by now to every service that takes it.

    A service that starts does so by itself. Exit code 1: some types still have no queue, or no
    event of a type that you named is unrouted.
    """
    with nothing_begun():
        from headway.apps.cli.unrouted_events import route_events  # noqa: PLC0415 (a fast start)

    route_events(bus, types, reason=reason, dry_run=dry_run, machine=as_json)


@app.command()
def purge(  # noqa: PLR0917 (typer gives them by name)
    types: Annotated[
        list[str] | None, typer.Argument(metavar="[TYPE]...", help="Events of these types.")
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only the event with this id; can be given again."),
    ] = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    bus: BusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove unrouted events for good; asks first. Name their types, their ids, or both."""
    with nothing_begun():
        from headway.apps.cli.unrouted_events import purge_events  # noqa: PLC0415 (a fast start)

    purge_events(bus, types, ids=ids, reason=reason, dry_run=dry_run, ask=not yes, machine=as_json)


@app.command()
def history(
    limit: HistoryLimitOption = 20, bus: BusOption = None, as_json: JsonOption = False
) -> None:
    """Show who routed or purged unrouted events, when, which and why."""
    with nothing_begun():
        from headway.apps.cli.unrouted_events import show_history  # noqa: PLC0415 (a fast start)

    show_history(bus, limit=limit, machine=as_json)
