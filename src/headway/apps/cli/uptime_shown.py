"""What `headway uptime` shows."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from headway.apps.cli.screen import as_json as json_of
from headway.apps.cli.screen import harmless, when
from headway.systems.uptime.store import Check, Rejected

_BYTES_SHOWN = 500

_FIGURES = {
    "subscriptions": "subscriptions",
    "results": "results recorded",
    "misses": "misses that stand",
    "retracted": "misses taken back",
    "incidents": "incidents",
    "rejected": "not readable, kept",
    "waiting_subscriptions": "subscriptions that hold results",
}
_RATES = {
    "size": "results held now: added less removed",
    "success_rate": "backlogs drained, of those that began",
    "timeout_rate": "waits given up by time, per held result",
    "circuit_breaker_rate": "waits ended by the breaker, per held result",
}


def show_status(status: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json_of(status))
        return
    table = Table(box=None, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, justify="right")
    for name, words in _FIGURES.items():
        table.add_row(words, str(status[name]))
    for name, value in status["rates"].items():
        table.add_row(_RATES[name], _rate(name, value))
    for name, value in status["counters"].items():
        table.add_row(harmless(name), f"{value:g}")
    console = Console(highlight=False)
    console.print(table)
    organizations = ", ".join(status["organizations"]) or "none by name"
    console.print(
        harmless(
            f"{status['feature']}: {organizations}, {status['percentage']:g} % of the others, by "
            "the settings of this command (a consumer may run with others)"
        ),
        soft_wrap=True,
    )


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


def show_rejected(rejected: Sequence[Rejected], as_json: bool) -> None:
    if as_json:
        typer.echo(json_of([_fields(each) for each in rejected]))
        return
    console = Console(highlight=False)
    if not rejected:
        console.print("Everything that came was a result.")
    for each in rejected:
        console.print(when(each.at), "  ", harmless(each.reason), soft_wrap=True, sep="")
        text = each.raw[:_BYTES_SHOWN].decode(errors="replace").rstrip("\r\n")
        left = len(each.raw) - _BYTES_SHOWN
        more = f" and {left} bytes more" if left > 0 else ""
        console.print("    ", harmless(text), more, soft_wrap=True, sep="")


def _fields(rejected: Rejected) -> dict[str, Any]:
    return {"at": rejected.at, "reason": rejected.reason, **_body(rejected.raw)}


def _body(raw: bytes) -> dict[str, str]:
    """Give bytes as text if they are, else in base64: nothing of them is changed."""
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:
        return {"raw_base64": b64encode(raw).decode()}


def _rate(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if name == "size" else f"{value:.1%}"
