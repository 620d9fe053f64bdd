"""What `headway order` changes: waits are ended, shown before it is done."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import typer

from headway.apps.cli.asking import confirmed
from headway.apps.cli.codes import CANNOT_GO_ON, NOT_AS_PROMISED
from headway.apps.cli.order_shown import show_keys
from headway.apps.cli.output import after_a_change
from headway.apps.cli.record import record_of_changes
from headway.apps.cli.screen import bar, many, say_on_ctrl_c
from headway.apps.cli.sequences import Which, on_sequences
from headway.core.errors import ConfigurationError
from headway.core.sequence_settings import OnGap
from headway.core.showing import shown
from headway.runtime.order import DrainReport, ResultOrder

_KEYS_SHOWN = 10


def drain_keys(
    which: Which,
    keys: Sequence[str] | None,
    *,
    everything: bool,
    reason: str,
    dry_run: bool,
    ask: bool,
) -> None:
    """End waits, after a question, and say what came of it."""
    if bool(keys) == everything:
        raise ConfigurationError(
            "drain needs to be told what: name keys, or say --all for all that stand before a gap"
            + " (and not both)" * everything
        )
    so_far = DrainReport(dry_run=dry_run)
    on_gap: OnGap | None = None
    where = "here"

    def before(report: DrainReport) -> None:
        if ask:
            _ask(report, on_gap)

    def tell(report: DrainReport) -> None:
        nonlocal so_far
        so_far = report
        move(report.done + len(report.meanwhile), len(report.chosen))

    async def change(order: ResultOrder) -> DrainReport:
        nonlocal on_gap, where
        on_gap, where = order.on_gap, order.where
        return await order.drain(
            keys, reason=reason, dry_run=dry_run, before=before, on_progress=tell
        )

    with (
        record_of_changes(),
        say_on_ctrl_c(lambda: f"{many(so_far.done, 'key')} of {len(so_far.chosen)} drained"),
        bar("draining") as move,
    ):
        report = on_sequences(which, change)
    history = replace(which, settings=None).command("history")
    with after_a_change(history, made=report.done > 0 and not dry_run):
        _show(report, on_gap, where)


def _ask(meant: DrainReport, on_gap: OnGap | None) -> None:
    words = f"{_keys(meant)}: {_comes_of(meant, on_gap)}"
    if not sys.stdin.isatty():
        typer.echo(
            f"headway: {words}, and nobody is here to be asked: say --yes, or look first with "
            "--dry-run",
            err=True,
        )
        raise typer.Exit(CANNOT_GO_ON)
    _show_first(meant, err=True)
    if not confirmed(f"Drain {words}?"):
        typer.echo("Nothing was drained.", err=True)
        raise typer.Exit(NOT_AS_PROMISED)


def _show(report: DrainReport, on_gap: OnGap | None, where: str) -> None:
    if report.chosen:
        would = "would be " * report.dry_run
        typer.echo(f"{report.done} of {_keys(report)} {would}drained: {_comes_of(report, on_gap)}")
        if report.dry_run:
            _show_first(report)
            typer.echo("Nothing was changed: this was a dry run.")
        else:
            typer.echo("Workers hand them out at their next look, within seconds if any runs.")
    elif not (report.unknown or report.holding_nothing):
        typer.echo("No key stands before a gap: there is nothing to drain.")
    for key in report.meanwhile:
        typer.echo(f"  {shown(key)} held nothing any more when it was its turn")
    for key in report.holding_nothing:
        typer.echo(f"  {shown(key)} holds nothing: there is nothing to drain")
    for key in report.unknown:
        typer.echo(f"  {shown(key)} is not known {where}")
    if report.unknown or report.holding_nothing:
        raise typer.Exit(NOT_AS_PROMISED)


def _show_first(report: DrainReport, *, err: bool = False) -> None:
    typer.echo(err=err)
    show_keys(report.chosen[:_KEYS_SHOWN], err=err)
    rest = len(report.chosen) - _KEYS_SHOWN
    if rest > 0:
        typer.echo(f"and {rest} more", err=err)
    typer.echo(err=err)


def _keys(report: DrainReport) -> str:
    return many(len(report.chosen), "key")


def _comes_of(report: DrainReport, on_gap: OnGap | None) -> str:
    missing = sum(each.missing for each in report.chosen)
    held = sum(len(each.standing.held) for each in report.chosen)
    done = "skipped" if on_gap is OnGap.SKIP else "made up as missed"
    if on_gap is None:
        done = "given up"  # what that means only the workers know
    return f"{many(missing, 'position')} {done}, {many(held, 'held result')} released"
