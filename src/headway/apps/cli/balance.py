"""What `headway verify` finds: every place, what was accepted, and the difference."""

from collections.abc import Sequence
from pathlib import Path

import typer

from headway.apps.cli.codes import NOT_AS_PROMISED, NOT_KNOWN
from headway.apps.cli.engines import on_engine
from headway.apps.cli.screen import as_json, many, show_table
from headway.core.errors import ConfigurationError
from headway.core.showing import shown
from headway.ports.engine import Engine
from headway.runtime.down_notes import DOWN, paused_types
from headway.runtime.overview import Report, Verdict, verify

_CODES = {Verdict.OK: 0, Verdict.NOT_OK: NOT_AS_PROMISED, Verdict.UNKNOWN: NOT_KNOWN}
_FAULTS = {
    "missing": "was accepted and is nowhere",
    "surplus": "is there and was never accepted",
    "twice": "is in more than one place",
}


def show_balance(bus: str | None, *, against: Path | None, limit: int, machine: bool) -> None:
    """Count, compare, and end with the code that says how it came out."""
    wanted = None if against is None else _read(against)

    async def count(engine: Engine) -> tuple[Report, list[tuple[str, str]]]:
        report = await verify(engine.places, against=wanted, examples=limit)
        notes = () if engine.sweeping is None else await engine.sweeping.leases.held(DOWN)
        return report, paused_types(notes)

    report, paused = on_engine(bus, count)
    if machine:
        types = [{"service": service, "event_type": kind} for service, kind in paused]
        typer.echo(as_json({**_as_dict(report), "paused": types}, indent=2))
    else:
        _show(report, limit, paused)
    raise typer.Exit(_CODES[report.verdict])


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)  # which would name the file again
        raise ConfigurationError(f"--against {str(path)!r} is not accepted: {why}") from None
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise ConfigurationError(
            f"--against {str(path)!r} is not accepted: it is empty; write the ids of what was "
            "published into it, one on each line"
        )
    return found


def _show(report: Report, limit: int, paused: Sequence[tuple[str, str]]) -> None:
    counts = {
        **report.places,
        "total": report.total,
        "accepted": report.count.accepted,
        "difference": report.difference,
    }
    rows = [(name, "unknown" if it is None else str(it)) for name, it in counts.items()]
    show_table(["place", "operations"], rows, numbers=["operations"])
    typer.echo()
    for each in report.examples:
        there = f" ({', '.join(each.places)})" * bool(each.places)
        typer.echo(f"{shown(each.operation)} of {shown(each.queue)} {_FAULTS[each.fault]}{there}")
    if report.astray > len(report.examples):
        typer.echo(f"... and {report.astray - len(report.examples)} more (see --limit)")
    for operation in report.nowhere[:limit]:
        typer.echo(f"{shown(operation)} of the file was accepted and is nowhere")
    for operation in report.not_known[:limit]:
        typer.echo(f"{shown(operation)} of the file {_not_known(report)}")
    for operation in report.not_yet[:limit]:
        typer.echo(f"{shown(operation)} of the file {_not_yet(report)}")
    for service, event_type in paused:
        typer.echo(
            f"{event_type} of {service} is paused: most of them failed for good, as after a bad "
            "deploy. Fix or roll back and restart its workers, or send them SIGHUP."
        )
    typer.echo(_said(report))
    if report.count.unrouted:
        waits = many(report.count.unrouted, "event waits", "events wait")
        its = "its type" if report.count.unrouted == 1 else "their types"
        typer.echo(f"{waits} for a service that takes {its}: see 'headway unrouted list'")


def _not_known(report: Report) -> str:
    if report.count.accepted is not None:
        return "is not known here: it was forgotten, or never accepted"
    return (
        "is in no known place: nothing waits in any queue, and it is neither done nor failed; it "
        "was lost, forgotten, or never published"
    )


def _not_yet(report: Report) -> str:
    if report.count.remembers:
        return "is not known yet: it is neither done nor failed, and may still wait or be in hand"
    return "cannot be known: without a store nothing remembers what was done (HEADWAY_STORE)"


def _said(report: Report) -> str:
    match report.verdict:
        case Verdict.OK if report.count.accepted is None:
            return f"ok: all {report.against} of the file were found, 0 are missing"
        case Verdict.OK:
            return "ok: everything that was accepted is in its one place"
        case Verdict.UNKNOWN if report.not_yet:
            return _undecided(report)
        case Verdict.UNKNOWN if not report.count.queues:
            return "unknown: no service has ever run on this engine, so nothing was counted here"
        case Verdict.UNKNOWN:
            return (
                "unknown: this engine does not count what it accepts; give the ids of what was "
                "published with --against FILE"
                + ", and set HEADWAY_STORE so that what was done is remembered"
                * (not report.count.remembers)
            )
        case Verdict.NOT_OK:
            faults = []
            if report.astray or report.difference:
                faults.append(f"{many(report.astray, 'operation')} not in exactly one place")
            if report.nowhere:
                faults.append(f"{len(report.nowhere)} of {report.against} in the file nowhere")
            if report.not_known:
                where = "not known here" if report.count.accepted is not None else "missing"
                faults.append(f"{len(report.not_known)} of {report.against} in the file {where}")
            return f"not ok: {', '.join(faults)}"


def _undecided(report: Report) -> str:
    found = f"{len(report.not_yet)} of {report.against} in the file were not found"
    if not report.count.remembers:
        return f"unknown: {found}, and without a store nothing remembers what was done"
    if not report.count.waiting:
        return f"unknown: {found}, and workers may have some in hand; stop them and ask again"
    waiting = many(report.count.waiting, "event still waits", "events still wait")
    return (
        f"unknown: {found}, and {waiting} in queues into which nobody can look; ask again when "
        "they are empty"
    )


def _as_dict(report: Report) -> dict[str, object]:
    found: dict[str, object] = {
        "verdict": report.verdict,
        "places": report.places,
        "total": report.total,
        "accepted": report.count.accepted,
        "difference": report.difference,
        "purged": report.count.purged,
        "workers": report.count.workers,
        "queues": report.count.queues,
        "failed": report.count.failed,
        "astray": report.astray,
        "examples": report.examples,
    }
    if report.against is not None:
        found |= {
            "against": report.against,
            "nowhere": report.nowhere,
            "not_known": report.not_known,
            "not_yet": report.not_yet,
        }
    return found
