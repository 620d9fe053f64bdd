"""How the order of results looks to a person, and to machines."""

from collections.abc import Iterator, Sequence
from typing import Any

from headway.apps.cli.order_words import (
    gap_words,
    meaning,
    next_steps,
    position,
    short_position,
    span,
)
from headway.apps.cli.screen import show_table, when
from headway.core.sequence_settings import SequenceSettings
from headway.core.sequence_waiting import Mode
from headway.ports.sequences import HeldResult
from headway.runtime.order import KeyReport

_HELD_SHOWN = 8


def show_keys(reports: Sequence[KeyReport], *, err: bool = False) -> None:
    """Print one line for each key."""
    rows = [
        (
            each.key,
            each.standing.mode.value,
            "-" if each.expected is None else short_position(each.expected, each.step),
            str(each.missing),
            str(len(each.standing.held)),
            "-" if each.standing.since is None else span(each.now - each.standing.since),
            _ends(each),
        )
        for each in reports
    ]
    headings = ["key", "mode", "expected next", "missing", "held", "for", "gives up"]
    whole = ["mode", "for", "gives up"]
    show_table(headings, rows, numbers=["missing", "held"], whole=whole, err=err)


def _ends(report: KeyReport) -> str:
    if report.standing.mode is Mode.PARKED:
        return "never"
    end = report.standing.gives_up
    if end is None:
        return "-"
    return "now" if end <= report.now else f"in {span(end - report.now)}"


def explained(report: KeyReport, settings: SequenceSettings) -> Iterator[tuple[str, str]]:
    """Say how a key stands, each fact under its name."""
    stands, step = report.standing, report.step
    yield "mode", f"{stands.mode.value}: {meaning(report)}"
    if stands.marker is not None:
        yield "applied up to", position(stands.marker, step)
    if report.expected is not None:
        yield "expected next", position(report.expected, step)
    if report.gaps:
        gaps = "; ".join(gap_words(gap) for gap in report.gaps)
        yield "missing", f"{report.missing}: {gaps}"
    if stands.held:
        first = [position(one, step) for one in stands.held[:_HELD_SHOWN]]
        rest = len(stands.held) - len(first)
        yield "held", f"{len(stands.held)}: {', '.join(first)}" + f" and {rest} more" * (rest > 0)
    if stands.since is not None:
        yield "since", f"{when(stands.since)}, {span(report.now - stands.since)} ago"
    yield "next", next_steps(report, settings)


def fields(
    report: KeyReport, settings: SequenceSettings, contents: Sequence[HeldResult] | None = None
) -> dict[str, Any]:
    """Give what is known of a key, for machines."""
    stands, flight = report.standing, report.standing.flight
    known: dict[str, Any] = {
        "key": report.key,
        "mode": stands.mode,
        "applied": stands.marker,
        "expected": report.expected,
        "missing": [
            {"first": gap.first, "last": gap.last, "step": gap.step, "count": gap.count}
            for gap in report.gaps
        ],
        "held": stands.held,
        "in_flight": flight and {"position": flight.position, "until": flight.until},
        "attempts": report.attempts,
        "since": stands.since,
        "next_look": stands.next_look,
        "gives_up": stands.gives_up,
        "next": next_steps(report, settings),
        "now": report.now,
    }
    if contents is not None:
        known["contents"] = [
            {"position": each.position, "payload": each.payload.decode(errors="replace")}
            for each in contents
        ]
    return known
