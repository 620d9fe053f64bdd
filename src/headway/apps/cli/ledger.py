"""`headway ledger`: serve it, and put load on it."""

import asyncio
import json
from typing import Annotated

import typer

from headway.assembly.settings import environment

app = typer.Typer(help="The ledger: events over HTTP, stored once.", no_args_is_help=True)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes any.")] = None,
    database: Annotated[str | None, typer.Option(help="sqlite:///FILE or postgresql://...")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes behind the port.")] = 1,
    attempts: Annotated[
        int | None, typer.Option(min=1, max=100, help="Attempts for each event; 1: no retry.")
    ] = None,
) -> None:
    """Serve the ledger. What is not given here is read from LEDGER_* (see: config show)."""
    from headway.systems.ledger.serving import serve  # noqa: PLC0415 (a fast start of the others)
    from headway.systems.ledger.settings import LedgerSettings  # noqa: PLC0415

    given = {
        "LEDGER_HOST": host,
        "LEDGER_PORT": port,
        "LEDGER_DATABASE_URL": database,
        "LEDGER_RETRY_ATTEMPTS": attempts,
    }
    options = {name: str(value) for name, value in given.items() if value is not None}
    serve(LedgerSettings.from_mapping({**environment(), **options}), workers=workers)


@app.command()
def load(  # noqa: PLR0917 (typer gives them by name)
    url: Annotated[str, typer.Option(help="Where the ledger listens.")] = "http://127.0.0.1:8080",
    clients: Annotated[int, typer.Option(min=1, max=1000, help="Senders in parallel.")] = 50,
    events: Annotated[int, typer.Option(min=1, max=1_000_000, help="Events in all.")] = 1000,
    entities: Annotated[int, typer.Option(min=1, max=10_000, help="Cars and loans hit.")] = 10,
    honour_retry_after: Annotated[
        bool, typer.Option("--honour-retry-after", help="Send again what was not stored.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Figures for machines.")] = False,
) -> None:
    """Put load on a running ledger and prove that its books are exact afterwards."""
    from headway.apps.cli import figures  # noqa: PLC0415 (a fast start of the others)
    from headway.systems.ledger.load.plan import hot_run  # noqa: PLC0415
    from headway.systems.ledger.load.run import run_load  # noqa: PLC0415

    plan = hot_run(events=events, entities=entities)
    with figures.progress(len(plan.events), "events", quiet=as_json) as tick:
        report = asyncio.run(
            run_load(
                url, plan, clients=clients, honour_retry_after=honour_retry_after, on_answer=tick
            )
        )
    if as_json:
        typer.echo(json.dumps(report.as_dict()))
    else:
        figures.show(["load"], [([f"{clients} clients"], report)])
    raise typer.Exit(0 if report.exact else 1)
