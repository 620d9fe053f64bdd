"""`headway consensus`: archives of mail to summaries of their threads, and a search in them."""

from pathlib import Path
from typing import Annotated

import typer

from headway.apps.cli.options import not_empty
from headway.apps.cli.stopping import nothing_begun

app = typer.Typer(
    help="Archives of mail: ingest them, search them, read summaries.", no_args_is_help=True
)

DataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of the pipeline. [default: CONSENSUS_DATA, or consensus-data]"
    ),
]
BusOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The engine. [default: HEADWAY_BUS, or headway.db in the data folder]",
        callback=not_empty,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


@app.command()
def ingest(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Files (mbox, also .gz or .zip), folders, Maildirs, or patterns. [default: go on "
            "with what was ingested before]",
        ),
    ] = None,
    data: DataOption = None,
    bus: BusOption = None,
    workers: Annotated[int, typer.Option(min=1, max=64, metavar="NUMBER", help="Processes.")] = 2,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Only submit; services run elsewhere.")
    ] = False,
) -> None:
    """Read archives, and run the whole pipeline until everything is settled.

    Ctrl-C stops it; the same command goes on from there. What was ingested before is recognised by
    its content.

    Exit code 0: all is finished; 1: something failed or is still pending; 2: it could not begin;
    130: stopped.
    """
    with nothing_begun():
        from headway.apps.cli.consensus_ingesting import (  # noqa: PLC0415 (a fast start)
            Ingestion,
            ingest_archives,
        )

    ingest_archives(
        Ingestion(paths=paths or (), data=data, bus=bus, workers=workers, no_run=no_run)
    )


@app.command()
def status(data: DataOption = None, bus: BusOption = None, as_json: AsJson = False) -> None:
    """Show where everything is: documents by their state, events on their way, letters."""
    from headway.apps.cli.consensus_looking import show_status  # noqa: PLC0415 (a fast start)

    show_status(data, bus, machine=as_json)


@app.command()
def search(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="In plain words.")],
    top: Annotated[int, typer.Option(min=1, max=100, metavar="NUMBER", help="At most.")] = 5,
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Find the messages that speak of what you ask. Exit code 1: none does."""
    from headway.apps.cli.consensus_looking import show_hits  # noqa: PLC0415 (a fast start)

    show_hits(question, data, top=top, machine=as_json)


@app.command()
def summary(
    thread: Annotated[
        str | None,
        typer.Argument(
            metavar="THREAD", help="Its id, or how that begins; or words of its subject."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--list", help="List all threads.")] = False,
    data: DataOption = None,
    bus: BusOption = None,
    as_json: AsJson = False,
) -> None:
    """Show the summary of a thread. Exit code 1: there is none (yet)."""
    from headway.apps.cli.consensus_reading import show_summary, show_threads  # noqa: PLC0415

    if everything or thread is None:
        show_threads(data, bus, machine=as_json)
    else:
        show_summary(thread, data, bus, machine=as_json)
