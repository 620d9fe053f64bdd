"""What `headway order` shows; nothing is changed."""

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.text import Text

from headway.apps.cli.history import show_changes
from headway.apps.cli.order_shown import explained, fields, show_keys
from headway.apps.cli.screen import as_json, harmless, many, show_indented
from headway.apps.cli.sequences import Which, on_sequences
from headway.core.secrets import bytes_without_secrets
from headway.core.sequence_waiting import Mode
from headway.core.showing import shown
from headway.ports.sequences import HeldResult
from headway.runtime.history import Subject
from headway.runtime.order import KeyReport, OrderReport, ResultOrder

_NAMES_WIDE = 15
_CONTENTS_SHOWN = 100


def show_status(which: Which, key: str | None, *, limit: int, machine: bool) -> None:
    """Show the keys that hold results, or one key."""

    async def find(order: ResultOrder) -> tuple[ResultOrder, OrderReport]:
        if key is None:
            return order, await order.status(limit)
        return order, OrderReport(count=1, keys=[await order.explain(key)])

    order, report = on_sequences(which, find)
    if machine:
        typer.echo(as_json([fields(each, order.settings) for each in report.keys], indent=2))
    elif report.keys:
        show_keys(report.keys)
        if report.count > len(report.keys):
            typer.echo(f"and {report.count - len(report.keys)} more: a larger --limit")
        if key is None:
            typer.echo("\nWhat happens next, and when:")
            typer.echo(f"  {which.command('explain', report.keys[0].key)}")
    else:
        typer.echo(_nothing(which, report.names))


def _nothing(which: Which, names: Sequence[str] | None) -> str:
    """Say that no key holds anything, or that the name may be a wrong one."""
    name = which.name
    if names is None:
        return (
            f"No key of {shown(name)} holds anything now. If one should, is --name the right one?"
        )
    if name in names:
        return f"No key of {shown(name)} holds anything now."
    said = f"No resequencer named {shown(name)} has ever kept anything there."
    if not names:
        return f"{said} No other has, either."
    others = "".join(f"\n  {which.command('status', name=each)}" for each in names)
    return f"{said} These have:{others}"


def show_one(which: Which, key: str, *, contents: bool, machine: bool, raw: bool) -> None:
    """Explain one key."""

    async def find(
        order: ResultOrder,
    ) -> tuple[ResultOrder, KeyReport, Sequence[HeldResult] | None]:
        report = await order.explain(key)
        inside = await order.contents(key, _CONTENTS_SHOWN) if contents else None
        if inside and not raw:
            inside = [
                HeldResult(each.position, bytes_without_secrets(each.payload)) for each in inside
            ]
        return order, report, inside

    order, report, inside = on_sequences(which, find)
    if machine:
        typer.echo(as_json([fields(report, order.settings, inside)], indent=2))
        return
    console = Console(highlight=False)
    console.print(Text("key".ljust(_NAMES_WIDE)) + harmless(key), soft_wrap=True)
    for name, words in explained(report, order.settings):
        show_indented(console, harmless(words), _NAMES_WIDE, first=Text(name, "bold"))
    if order.on_gap is None and report.standing.mode is Mode.WAITING:
        usual = "times, limits and what becomes of a gap are the usual ones: no --settings given"
        show_indented(console, Text(usual), _NAMES_WIDE, first=Text("reckoned by", "bold"))
    for each in inside or ():
        text = each.payload.decode(errors="replace")
        show_indented(console, harmless(text), _NAMES_WIDE, first=Text(str(each.position)))
    left = len(report.standing.held) - len(inside or ())
    if inside is not None and left > 0:
        typer.echo(f"and {many(left, 'result')} more")
    if report.standing.mode is Mode.PARKED:
        typer.echo("\nTo give up what is missing, and release what is held:")
        typer.echo(f"  {which.command('drain', key)}")


def show_history(which: Which, *, limit: int, machine: bool) -> None:
    """Show who ended waits."""
    found = on_sequences(which, lambda order: order.history(limit))
    show_changes(found, Subject.SEQUENCES, machine=machine)
