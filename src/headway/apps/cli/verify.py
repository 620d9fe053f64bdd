"""`headway verify`: whether everything that was accepted is in its one place."""

from pathlib import Path
from typing import Annotated

import typer

from headway.apps.cli.options import BusOption


def verify(
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ids of operations, one on each line: find them all."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Name at most so many that are astray.")
    ] = 10,
    bus: BusOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One object, for machines.")] = False,
) -> None:
    """Count every place and compare with what was accepted.

    Exit code 0: it balances; 1: it does not, and the first ones astray are named; 4: it cannot be
    known, because this engine does not count what it accepts, or nothing has run on it yet.
    """
    from headway.apps.cli.balance import show_balance  # noqa: PLC0415 (a fast start of the others)

    show_balance(bus, against=against, limit=limit, machine=as_json)
