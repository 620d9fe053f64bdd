"""How stuck documents look to a person: where each stands, and what to do about all of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from headway.apps.cli.documents_shown import kinds
from headway.apps.cli.screen import harmless, show_indented
from headway.core.decision import archived_from
from headway.core.secrets import without_secrets
from headway.core.showing import shown
from headway.core.sweep import GiveUp, Leave, Requeue, Why
from headway.runtime.documents_stuck import MOST_FOREIGN, UNFIT, UNSWEPT, Standing, StuckReport

_STEPS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_ROUGHLY = 2
_GAP = 2
_FOR_ERRORS = 16
"""A table is shown where so many columns are left for the errors; else a paragraph for each."""
_MADE = "made "
"""Begins what is said of a document that was never attempted."""
_HEADINGS = ("id", "attempts", "the last", "status", "a sweep would", "last error")
_SETTLED = ("id", "attempts", "the last", "last error")
"""What is said of documents that were given up: for sweeps they are settled."""
_PERMANENT = ("id", "attempts", "the last", "rule", "version", "last error")
_SUMMARY = {
    "requeue": "the next sweep requeues them",
    "give up": "they have had all their attempts, the next sweep gives them up",
    UNFIT: "no event can be made of them: mend them or rebuild=, or archive them with --stuck",
    UNSWEPT: "nobody sweeps them: no handler of these services has documents= for them",
    Why.BACKOFF.value: "they wait for their backoff",
    Why.SCHEDULED.value: "they wait for the time that a person set",
    Why.LEASED.value: "a worker has them, or died just now",
    Why.CLAIMED.value: "a sweeper is requeueing them right now",
}
_UNKNOWN = {
    "requeue": "due by the usual rule; a sweep of their service would requeue them",
    "give up": "they have had the usual number of attempts; a sweep would give them up",
}
"""What is said instead where no service was named."""


def show_standings(report: StuckReport, now: datetime, *, known: bool) -> None:
    """Print what is stuck, what was given up, and a line for each kind of them.

    `known`: services say whether and how it is swept; else only the usual rule does.
    """
    name = shown(report.collection)
    _show("Stuck, the oldest first", report.first_stuck, report.stuck, _HEADINGS, now)
    _show("Given up", report.first_given_up, report.given_up, _SETTLED, now)
    _show("Failed permanently", report.first_permanent, report.permanent, _PERMANENT, now)
    if not (report.stuck or report.given_up or report.permanent):
        typer.echo(f"Nothing in {name} is stuck, and nothing was given up.")
    of = archived_from(report.collection)
    for reason, count in report.reasons.most_common():
        if of is not None:
            break  # nobody sweeps it
        words = _SUMMARY.get(reason, reason)
        typer.echo(f"{count:>6} stuck: {words if known else _UNKNOWN.get(reason, words)}")
    if report.given_up:
        typer.echo(f"{report.given_up:>6} given up: {kinds(report.given_up_errors)}")
    if report.permanent:
        typer.echo(f"{report.permanent:>6} failed permanently: {kinds(report.permanent_errors)}")
    if report.young:
        typer.echo(f"{report.young:>6} new: never attempted, and too young to be called stuck")
    if report.foreign:
        more = " or more" * (report.foreign >= MOST_FOREIGN)
        typer.echo(
            f"{report.foreign:>6}{more} foreign: their status is not one of ours, or nobody can "
            f"read them, so nobody sweeps them: headway documents export {name} --status foreign"
        )
    _advise(report, name, of)


def _advise(report: StuckReport, name: str, of: str | None) -> None:
    """Say what a person may decide; `of` is the collection whose archive this is, if it is one."""
    if of is not None:
        typer.echo(
            f"\nThis is the archive of {shown(of)}, which nobody sweeps:\n"
            f"  back to work         headway documents restore {shown(of)} --all\n"
            f"  nobody needs it      headway documents purge {name} --all\n"
            "  not known yet        leave it"
        )
    elif report.given_up:
        typer.echo(
            "\nWhat was given up waits for a decision:\n"
            f"  the fault is mended  headway documents reset {name} --all\n"
            f"  the data is corrupt  headway documents archive {name} --all, or purge\n"
            "  not known yet        leave it"
        )
    if of is None and report.permanent:
        typer.echo(
            "\nNo sweep takes up what failed permanently. These run it again:\n"
            f"  the cause is gone    headway documents retry {name} --error TYPE --at now\n"
            "  or its dead letter   headway failed requeue QUEUE"
        )


def warn_of_flag(collection: str, flag: str) -> None:
    """Warn where something else than the status may say what is processed."""
    typer.echo(
        f"Documents of {shown(collection)} have no status but a field {shown(flag)}, which is true "
        "or false. If that says what is processed, all this is wrong: name the service that "
        "declares it (--service MODULE:SERVICE, or HEADWAY_SERVICES).",
        err=True,
    )


def warn_of_services(collection: str) -> None:
    """Say what nobody can know where no service was named."""
    typer.echo(
        f"No service was named, so it is not known whether anybody sweeps {shown(collection)}, how "
        "many attempts its documents have, and whether events can be made of them: say --service "
        "MODULE:SERVICE, or set HEADWAY_SERVICES.",
        err=True,
    )


def _show(
    title: str, listed: Sequence[Standing], of: int, headings: Sequence[str], now: datetime
) -> None:
    if not listed:
        return
    console = Console(highlight=False)
    some = f"{of}" if len(listed) == of else f"{len(listed)} of {of}"
    console.print(Text(f"{title} ({some})", "bold"))
    cells = [_cells(each, now) for each in listed]
    rows = [[each[name] for name in headings] for each in cells]
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    room = console.width - sum(widths[:-1]) - _GAP * (len(widths) - 1)
    if room < min(_FOR_ERRORS, widths[-1]):
        for each in cells:
            _show_paragraph(console, each)
    else:
        widths[-1] = min(room, widths[-1])
        _show_line(console, headings, widths)
        console.print("─" * (sum(widths) + _GAP * (len(widths) - 1)))
        for row in rows:
            _show_line(console, row, widths)
    console.print()


def _cells(standing: Standing, now: datetime) -> Mapping[str, str]:
    cells = {
        "id": standing.document_id,
        "status": standing.state.value,
        "attempts": f"{standing.attempts} of {standing.max_attempts}",
        "the last": _last(standing, now),
        "a sweep would": _sweep(standing, now),
        "last error": _error(standing),
        "rule": str((standing.permanent or {}).get("rule", "-")),
        "version": str((standing.permanent or {}).get("version") or "-"),
    }
    return {name: shown(cell) for name, cell in cells.items()}


def _show_line(console: Console, cells: Sequence[str], widths: Sequence[int]) -> None:
    line = Text()
    for cell, width in zip(cells, widths, strict=True):
        text = harmless(cell)
        text.truncate(width, overflow="ellipsis", pad=True)
        line += text + " " * _GAP
    line.rstrip()
    console.print(line, soft_wrap=True)


def _show_paragraph(console: Console, cells: Mapping[str, str]) -> None:
    show_indented(console, harmless(cells["id"]), 0)
    last = cells["the last"]
    if last.startswith(_MADE):
        last = f"none yet, {last}"
    else:
        known = {"never": "none yet", "unknown": "nobody knows when"}
        last = known.get(last, f"the last {last}")
    words = f"{cells['status']}, {cells['attempts']} attempts, {last}"
    show_indented(console, harmless(f"{words}; a sweep would {cells['a sweep would']}"), _GAP)
    if cells["last error"] != "-":
        show_indented(console, harmless(cells["last error"]), _GAP)


def _sweep(standing: Standing, now: datetime) -> str:
    if standing.unswept or standing.unfit:
        return f"leave it: {UNSWEPT if standing.unswept else standing.unfit}"
    match standing.prospect.judgement:
        case Requeue(again=True):
            return "send it again now"
        case Requeue():
            return "requeue it now"
        case GiveUp():
            return "give it up now"
        case Leave(why=Why.GIVEN_UP):
            return "leave it alone"
        case Leave(why=why):
            due = standing.prospect.due
            return (
                f"wait {_distance((due - now).total_seconds())}: {why}" if due else f"wait: {why}"
            )


def _last(standing: Standing, now: datetime) -> str:
    if standing.last_attempt is None and standing.attempts:
        return "unknown"  # nobody wrote down when, or it cannot be read
    if standing.last_attempt is None and standing.created is not None:
        return f"{_MADE}{_ago(standing.created, now)}"
    return _ago(standing.last_attempt, now)


def _ago(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "never"
    seconds = (now - at).total_seconds()
    return f"{_distance(seconds)} ago" if seconds >= 0 else f"in {_distance(-seconds)}"


def _distance(seconds: float) -> str:
    """Say how long, roughly.

    >>> [_distance(n) for n in (0.2, 90, 7000, 7300, 200_000)]
    ['0 s', '90 s', '116 min', '2 h', '2 d']
    """
    for unit, length in _STEPS:
        if seconds >= _ROUGHLY * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _error(standing: Standing) -> str:
    error = without_secrets(standing.last_error)
    if not isinstance(error, Mapping):
        return "-" if error is None else str(error)
    words: list[Any] = [error[part] for part in ("type", "message") if error.get(part)]
    return ": ".join(map(str, words)) or "-"
