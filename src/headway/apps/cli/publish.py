"""`headway publish`: put events in by hand."""

from typing import Annotated

import typer

from headway.apps.cli.options import BusOption
from headway.core.errors import ConfigurationError


def publish(
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="The type of the event.")],
    data: Annotated[
        str,
        typer.Argument(
            metavar="JSON|-",
            help="The event's data, an object; -: read it from standard input, or many, each on a "
            "line of its own.",
        ),
    ],
    event_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The event's id; a second one with it is recognised."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Publish the bytes as they are, whatever they are.")
    ] = False,
    bus: BusOption = None,
) -> None:
    """Publish an event, or many; when it returns they are stored.

    If no service takes this type yet, they are kept as unrouted until one does.
    """
    from headway.apps.cli.sending import publish_events  # noqa: PLC0415 (a fast start of the others)

    if event_id is not None and not event_id.strip():
        raise ConfigurationError(
            "Invalid --event-id '': it is empty. Is a variable unset? Name an id, or leave "
            "--event-id out to get a new one."
        )
    publish_events(event_type, data, event_id=event_id, raw=raw, bus=bus)
