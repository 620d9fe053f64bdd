"""What `headway uptime` shows."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from headway.apps.cli.screen import as_json as json_of
from headway.apps.cli.screen import harmless
from headway.systems.uptime.store import Check

_FIGURES = {
    "subscriptions": "subscriptions",
    "results": "results recorded",
    "misses": "misses that stand",
    "retracted": "misses taken back",
    "incidents": "incidents",
    "rejected": "not readable, kept",
    "waiting_subscriptions": "subscriptions that hold results",
}


def show_status(status: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json_of(status))
        return
    table = Table(box=None, show_header=False)
    for name, words in _FIGURES.items():
        table.add_row(words, str(status[name]))
    for name, value in status["rates"].items():
        table.add_row(name.replace("_", " "), _rate(name, value))
    organizations = ", ".join(status["organizations"]) or "none by name"
    table.add_row(status["feature"], f"{organizations}; {status['percentage']:g} % of the others")
    for name, value in status["counters"].items():
        table.add_row(harmless(name), f"{value:g}")
    Console().print(table)


def show_checks(checks: Sequence[Check], as_json: bool) -> None:
    if as_json:
        typer.echo(json_of(checks))
        return
    table = Table("scheduled", "status", "guid", box=None)
    for check in checks:
        at = datetime.fromtimestamp(check.scheduled_check_time_ms / 1000, UTC)
        status = f"{check.status}, taken back" if check.retracted else check.status
        table.add_row(f"{at:%Y-%m-%d %H:%M:%S}Z", harmless(status), harmless(check.guid))
    Console().print(table)


def _rate(name: str, value: float | None) -> str:
    if value is None:
        return "unknown: nothing was held"
    return f"{value:g}" if name == "size" else f"{value:.1%}"
