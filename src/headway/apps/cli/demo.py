"""`headway demo`: see it work, without any server installed."""

import json
import shutil
import signal
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from headway.apps.cli.codes import CANNOT_GO_ON, NOT_AS_PROMISED
from headway.assembly.settings import environment

app = typer.Typer(
    help="Demonstrations that need no server; without a name, consensus.",
    invoke_without_command=True,
)

_SERVE = (sys.executable, "-P", "-m", "headway.apps.cli", "ledger", "serve")
_NEXT = """Next:
  headway ledger serve: run it yourself
  docs/how-to/run-the-ledger.md: its answers and settings"""
_WIDEST = 78


@app.callback()
def demo(context: typer.Context) -> None:
    """Play the one that is named, or the first."""
    if context.invoked_subcommand is None:
        consensus()


@app.command()
def consensus(
    months: Annotated[
        int, typer.Option(min=1, max=3, metavar="NUMBER", help="How much of the mailing list.")
    ] = 3,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep everything in this folder, to look at it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Figures for machines.")] = False,
) -> None:
    """Send a mailing list through seven services while five things go wrong on purpose.

    Exit code 0: all was finished but the poison, the books balance, and every fault was seen; 1: it
    was not so; 2: it could not start.
    """
    from headway.apps.cli.demo_consensus import show_consensus  # noqa: PLC0415 (a fast start)

    _clean_up_on_the_way_out()
    show_consensus(months, keep=keep, machine=as_json)


@app.command()
def ledger(
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="postgresql://... instead of a SQLite file."),
    ] = None,
    events: Annotated[
        int,
        typer.Option(min=20, max=100_000, metavar="NUMBER", help="Events of the larger load."),
    ] = 400,
    as_json: Annotated[bool, typer.Option("--json", help="Figures for machines.")] = False,
) -> None:
    """Send events in parallel to a real server, with retry off and on, and prove the books.

    Exit code 0: the books were exact in every run, and with retry every event was stored; 1: they
    were not; 2: it could not start.
    """
    from headway.apps.cli import figures  # noqa: PLC0415 (a fast start of the other commands)
    from headway.systems.ledger.demo import ServerDidNotStartError, events_in_all, play  # noqa: PLC0415

    _clean_up_on_the_way_out()
    with figures.progress(events_in_all(events), "starting servers", quiet=as_json) as tick:
        try:
            acts = play(
                _SERVE,
                environment(),
                database=database,
                events=events,
                on_act=tick.say,
                on_answer=tick,
            )
        except ServerDidNotStartError as error:
            typer.echo(f"headway: {error}", err=True)
            raise typer.Exit(CANNOT_GO_ON) from None
    shortcomings = [
        f"{act.load}, retry {act.retry}: {act.shortcoming}" for act in acts if act.shortcoming
    ]
    if as_json:
        runs = [
            {"load": act.load, "retry": act.retry, "clients": act.clients, **act.report.as_dict()}
            for act in acts
        ]
        typer.echo(json.dumps({"runs": runs, "shortcomings": shortcomings}, indent=2))
    else:
        figures.show(["load", "retry"], [((act.load, act.retry), act.report) for act in acts])
        typer.echo("\n" + _explained(shortcomings, acts[-1].report.at_once_rate))
        typer.echo(f"\n{_NEXT}")
    raise typer.Exit(NOT_AS_PROMISED if shortcomings else 0)


@app.command()
def uptime(
    subscriptions: Annotated[
        int, typer.Option(min=10, metavar="NUMBER", help="How many sites are checked.")
    ] = 400,
    backlog: Annotated[
        int, typer.Option(min=1, max=6, metavar="MINUTES", help="How long nobody consumes.")
    ] = 3,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Another one, another course.")] = 4,
    picture: Annotated[
        str, typer.Option(metavar="FILE", help="Where the picture goes, as SVG; -: nowhere.")
    ] = "uptime-demo.svg",
    as_json: Annotated[bool, typer.Option("--json", help="Figures for machines.")] = False,
) -> None:
    """Process the same results in plain order of arrival and in their own, and compare.

    Exit code 0: every criterion is met; 1: one is not; 2: it could not start.
    """
    from headway.apps.cli.demo_uptime import show_uptime  # noqa: PLC0415 (a fast start)
    from headway.systems.uptime.demo.scenario import Scenario  # noqa: PLC0415 (the same)

    _clean_up_on_the_way_out()
    scenario = Scenario(subscriptions=subscriptions, backlog=60 * backlog, seed=seed)
    file = None if picture == "-" else Path(picture)
    show_uptime(scenario, picture_file=file, machine=as_json)


def _clean_up_on_the_way_out() -> None:
    """Take the order to stop, and the end of the terminal, as Ctrl-C is taken.

    As Ctrl-C itself, because asyncio knows how to end what is going on then; an exception of our
    own could hit the start of a thread, which nobody would end.
    """
    for order in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(order) != signal.SIG_IGN:  # as under nohup
            signal.signal(order, lambda *_: signal.raise_signal(signal.SIGINT))


def _explained(shortcomings: list[str], at_once: float) -> str:
    if shortcomings:
        return "Not as promised:\n" + "\n".join(f"  {each}" for each in shortcomings)
    later = " The rest followed when their sender honoured Retry-After." * (at_once < 1)
    text = (
        "Every event changes a car or a loan that others change at the same time. Without retry "
        "the losers of a conflict are turned away; with retry they run again, up to 5 times in "
        f"all. Of the last load {at_once:.1%} were stored at the first send.{later} Exact means: "
        "every answer agrees with the database, and every sum with its events, to the cent."
    )
    return textwrap.fill(text, min(_WIDEST, shutil.get_terminal_size().columns - 1))
