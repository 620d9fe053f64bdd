"""`headway verify`: whether everything that was accepted is in its one place."""

from pathlib import Path
from typing import Annotated

import typer

from headway.apps.cli.codes import CANNOT_GO_ON, NOT_AS_PROMISED
from headway.apps.cli.engines import BusOption, on_engine
from headway.apps.cli.screen import as_json, many, show_table
from headway.core.errors import ConfigurationError
from headway.core.showing import shown
from headway.runtime.overview import Report, Verdict
from headway.runtime.overview import verify as verify_places

_CODES = {Verdict.OK: 0, Verdict.NOT_OK: NOT_AS_PROMISED, Verdict.UNKNOWN: CANNOT_GO_ON}
_FAULTS = {
    "missing": "was accepted and is nowhere",
    "surplus": "is there and was never accepted",
    "twice": "is in more than one place",
}


def verify(
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ids of operations, one on each line: find them all."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Name at most so many that are astray.")
    ] = 10,
    bus: BusOption = None,
    as_json_: Annotated[bool, typer.Option("--json", help="One object, for machines.")] = False,
) -> None:
    """Count every place and compare with what was accepted.

    Exit code 0: it balances; 1: it does not, and the first ones astray are named; 2: nobody counted
    what was accepted, so it cannot be known.
    """
    wanted = None if against is None else _read(against)
    report = on_engine(
        bus, lambda engine: verify_places(engine.places, against=wanted, examples=limit)
    )
    if as_json_:
        typer.echo(as_json(_as_dict(report), indent=2))
    else:
        _show(report, limit)
    raise typer.Exit(_CODES[report.verdict])


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--against {str(path)!r} is not accepted: {error}") from None
    return [line.strip() for line in lines if line.strip()]


def _show(report: Report, limit: int) -> None:
    accepted, difference = report.count.accepted, report.difference
    rows = [(place, str(count)) for place, count in report.places.items()]
    rows += [("total", str(report.total))]
    rows += [("accepted", "unknown" if accepted is None else str(accepted))]
    rows += [("difference", "unknown" if difference is None else str(difference))]
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
        typer.echo(
            f"{shown(operation)} of the file is not known here: it was forgotten, or never accepted"
        )
    typer.echo(_said(report))


def _said(report: Report) -> str:
    match report.verdict:
        case Verdict.OK:
            return "ok: everything that was accepted is in its one place"
        case Verdict.UNKNOWN:
            return (
                "unknown: this engine does not count what it accepts; give the ids of what was "
                "published with --against FILE"
            )
        case Verdict.NOT_OK:
            faults = [f"{many(report.astray, 'operation')} not in exactly one place"]
            if report.nowhere:
                faults.append(f"{len(report.nowhere)} of {report.against} in the file nowhere")
            if report.not_known:
                faults.append(
                    f"{len(report.not_known)} of {report.against} in the file not known here"
                )
            return f"not ok: {', '.join(faults)}"


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
        }
    return found
