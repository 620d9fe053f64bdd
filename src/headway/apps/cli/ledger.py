"""`headway ledger`: serve it, and put load on it."""

import asyncio
import json
from typing import Annotated, Any

import typer

from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.logs import use_level
from headway.apps.cli.options import LogLevelOption
from headway.assembly.settings import environment
from headway.systems.ledger.settings import LedgerSettings

_DEFAULTS = LedgerSettings()
_STDIN = 0

app = typer.Typer(help="The ledger: events over HTTP, stored once.", no_args_is_help=True)


def _setting(metavar: str, words: str, bounds: tuple[int, int] | None = None) -> Any:
    """Make an option that stands for a setting, so that its words have to tell the default."""
    least, most = bounds or (None, None)
    return typer.Option(metavar=metavar, help=words, min=least, max=most)


@app.command()
def serve(  # noqa: PLR0917 (typer gives them by name)
    host: Annotated[
        str | None,
        _setting("ADDRESS", f"Address to listen on. [default: LEDGER_HOST, or {_DEFAULTS.host}]"),
    ] = None,
    port: Annotated[
        int | None,
        _setting(
            "NUMBER", f"Port; 0 takes any. [default: LEDGER_PORT, or {_DEFAULTS.port}]", (0, 65_535)
        ),
    ] = None,
    database: Annotated[
        str | None,
        _setting(
            "URL",
            "sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/DATABASE. "
            f"[default: LEDGER_DATABASE_URL, or {_DEFAULTS.database_url}]",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, metavar="NUMBER", help="Processes behind the port.")
    ] = 1,
    attempts: Annotated[
        int | None,
        _setting(
            "NUMBER",
            "Attempts in all for each event; 1: no retry. "
            f"[default: LEDGER_RETRY_ATTEMPTS, or {_DEFAULTS.retry_attempts}]",
            (1, 100),
        ),
    ] = None,
    log_level: LogLevelOption = None,
    as_long_as_stdin: Annotated[bool, typer.Option("--as-long-as-stdin", hidden=True)] = False,
) -> None:
    """Serve the ledger. What is not given here is read from LEDGER_* (see: config show)."""
    from headway.systems.ledger.serving import serve  # noqa: PLC0415 (a fast start of the others)

    use_level(log_level)
    given = {
        "LEDGER_HOST": host,
        "LEDGER_PORT": port,
        "LEDGER_DATABASE_URL": database,
        "LEDGER_RETRY_ATTEMPTS": attempts,
    }
    options = {name: str(value) for name, value in given.items() if value is not None}
    serve(
        LedgerSettings.from_mapping({**environment(), **options}),
        workers=workers,
        as_long_as_open=_STDIN if as_long_as_stdin else None,
    )


@app.command()
def load(  # noqa: PLR0917 (typer gives them by name)
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where the ledger listens.")
    ] = "http://127.0.0.1:8080",
    clients: Annotated[
        int, typer.Option(min=1, max=1000, metavar="NUMBER", help="Senders in parallel.")
    ] = 50,
    events: Annotated[
        int, typer.Option(min=1, max=1_000_000, metavar="NUMBER", help="Events in all.")
    ] = 1000,
    entities: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="NUMBER", help="Cars and loans hit.")
    ] = 10,
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
    with figures.progress(len(plan.events), f"sending {events} events", quiet=as_json) as tick:
        report = asyncio.run(
            run_load(
                url, plan, clients=clients, honour_retry_after=honour_retry_after, on_answer=tick
            )
        )
    if as_json:
        typer.echo(json.dumps(report.as_dict()))
    else:
        figures.show(["load"], [([f"{clients} clients"], report)])
    raise typer.Exit(0 if report.exact else NOT_AS_PROMISED)
