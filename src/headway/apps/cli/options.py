"""Options that several commands share."""

from typing import Annotated

import typer

BusOption = Annotated[
    str | None,
    typer.Option(
        "--bus", metavar="URL", help="The engine. [default: HEADWAY_BUS, or sqlite:///headway.db]"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="A list of objects, for machines.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
YesOption = Annotated[bool, typer.Option("--yes", "--confirm", help="Do not ask.")]
