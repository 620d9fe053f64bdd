"""Options that several commands share."""

from typing import Annotated

import typer

BusOption = Annotated[
    str | None,
    typer.Option(
        "--bus", metavar="URL", help="The engine. [default: HEADWAY_BUS, or sqlite:///headway.db]"
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        metavar="NUMBER",
        help="Serve /metrics on this port of localhost. [default: do not]",
    ),
]
MetricsHostOption = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Address to serve /metrics on.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="A list of objects, for machines.")]
RawOption = Annotated[
    bool, typer.Option("--raw", help="As it is stored, with passwords, keys and tokens.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why you change this, for the history.")
]
HistoryLimitOption = Annotated[
    int, typer.Option("--limit", min=1, metavar="NUMBER", help="At most so many, newest first.")
]
YesOption = Annotated[bool, typer.Option("--yes", "--confirm", help="Do not ask.")]
