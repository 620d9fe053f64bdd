"""Options that several commands share."""

from typing import Annotated

import typer

BusOption = Annotated[
    str | None,
    typer.Option(
        "--bus", metavar="URL", help="The engine. [default: HEADWAY_BUS, or sqlite:///headway.db]"
    ),
]
