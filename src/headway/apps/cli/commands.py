"""All commands, and what happens when one of them cannot go on."""

from typing import Annotated

import typer

from headway.apps.cli import (
    config,
    consensus,
    demo,
    documents,
    failed,
    ledger,
    order,
    unrouted,
    uptime,
)
from headway.apps.cli.publish import publish
from headway.apps.cli.refusals import said_in_one_line
from headway.apps.cli.run import run as run_command
from headway.apps.cli.stopping import sigterm_as_ctrl_c
from headway.apps.cli.sweep import sweep
from headway.apps.cli.ui import ui
from headway.apps.cli.verify import verify

app = typer.Typer(
    name="headway",
    help="Recoverability for event-driven Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # The framed help shows a flag with <bool> behind it, as if it took a value.
    rich_markup_mode=None,
)
app.add_typer(config.app, name="config")
app.add_typer(consensus.app, name="consensus")
app.add_typer(demo.app, name="demo")
app.add_typer(documents.app, name="documents")
app.add_typer(failed.app, name="failed")
app.add_typer(ledger.app, name="ledger")
app.add_typer(order.app, name="order")
app.add_typer(unrouted.app, name="unrouted")
app.add_typer(uptime.app, name="uptime")
app.command(name="publish")(publish)
app.command(name="run")(run_command)
app.command(name="sweep")(sweep)
app.command(name="ui")(ui)
app.command(name="verify")(verify)


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 (a fast start of the commands)

        typer.echo(f"headway {version('headway')}")
        raise typer.Exit


@app.callback()
def headway(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Keep services moving: every piece of work finishes, or stops where you see why."""


def run() -> None:
    """Run a command; what a person can mend is said in one line, without a traceback."""
    with sigterm_as_ctrl_c(), said_in_one_line():
        app()
