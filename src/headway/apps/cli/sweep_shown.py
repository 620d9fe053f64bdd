"""How sweeps look to a person, and to a machine."""

from collections.abc import Mapping
from typing import Any

import typer

from headway.apps.cli.screen import many, show_table
from headway.core.showing import shown
from headway.core.sweep_facts import CollectionSwept, SweepEnded
from headway.core.sweep_totals import Skip
from headway.runtime.sweep_preview import Listed, Preview

_APART = (Skip.BACKOFF, Skip.HELD_BACK)
"""These have columns of their own; the others are left alone for reasons that --json tells."""
_WHY = {
    Skip.BACKOFF: "their next attempt is not due yet",
    Skip.IN_HAND: "a worker may be at them, or their events wait in a queue",
    Skip.LEASED: "a worker is at them, or died just now",
    Skip.CLAIMED: "another sweeper is sending their events",
    Skip.YOUNG: "they are new, and their first events may be on their way",
    Skip.SCHEDULED: "a person said when",
    Skip.SETTLED: "they have ended, or are not ours",
    Skip.CHANGED: "somebody else changed them first",
    Skip.HELD_BACK: "they are over the limit of one run, and come in later ones",
    Skip.DOWN: "their events are paused, or what these depend on is down",
    Skip.CIRCUIT: "too many leases are over at once: heartbeats must have failed",
    Skip.REFUSED: "their store does not let them be changed",
}


def show_run(ended: SweepEnded) -> None:
    """Print what one run did, a line for each collection."""
    headings = ["collection", "stuck", "requeued", "backoff", "left alone", "given up", "errors"]
    rows = [_row(one, _errors(one, ended)) for one in ended.collections]
    held_back = any(one.held_back for one in ended.collections)
    if held_back:
        headings.append("held back")
        rows = [
            [*row, str(one.held_back)] for row, one in zip(rows, ended.collections, strict=True)
        ]
    show_table(headings, rows, numbers=headings[1:])
    unswept = {one.broken_by for one in ended.collections if one.broken_by and not one.errors}
    for why in sorted(unswept):
        typer.echo(f"no collection could be swept: {shown(why)}", err=True)
    for kind, count in sorted(() if unswept else ended.errors.items()):
        typer.echo(
            f"{count} x {shown(kind)}: the figures of this run could not be stored; the next that "
            "can be bring them",
            err=True,
        )


def _errors(one: CollectionSwept, ended: SweepEnded) -> Mapping[str, int]:
    """What went wrong with a collection, or with the run, so that it was not even begun with."""
    return one.errors or (ended.errors if one.broken_by else {})


def _row(one: CollectionSwept, errors: Mapping[str, int]) -> list[str]:
    return [
        one.collection,
        "unknown" if one.stuck is None else str(one.stuck),
        str(one.requeued),
        str(one.skipped.get(Skip.BACKOFF, 0)),
        str(sum(count for why, count in one.skipped.items() if why not in _APART)),
        str(one.given_up),
        ", ".join(f"{count} {kind}" for kind, count in errors.items()) or "0",
    ]


def run_fields(ended: SweepEnded) -> list[dict[str, Any]]:
    """Give the same for machines."""
    return [
        {
            "collection": one.collection,
            "stuck": one.stuck,
            "failed_max_retries": None if one.tally is None else one.tally.given_up,
            "failed_permanently": None if one.tally is None else one.tally.permanent,
            "requeued": one.requeued,
            "skipped": _words(one.skipped),
            "given_up": one.given_up,
            "held_back": one.held_back,
            "errors": dict(_errors(one, ended)),
            "broken_by": one.broken_by or None,
        }
        for one in ended.collections
    ]


def _words(skipped: Mapping[Skip, int]) -> dict[str, int]:
    return {why.value: count for why, count in skipped.items()}


def show_preview(seen: Preview) -> None:
    """Print what would become of the documents of a collection."""
    typer.echo(
        f"{shown(seen.collection)}: {many(seen.requeue.count, 'document')} would be requeued, "
        f"{seen.give_up.count} given up; {seen.stuck} {'is' if seen.stuck == 1 else 'are'} stuck"
    )
    if seen.near is not None:
        typer.echo(f"  there is no document in it at all: did you mean {shown(seen.near)}?")
    if seen.is_down:
        typer.echo(f"  one of them now, as a probe: {_WHY[Skip.DOWN]}")
    _line("requeue", seen.requeue)
    _line("give up", seen.give_up)
    for why, listed in seen.skipped.items():
        _line(f"left alone, because {_WHY[why]}", listed)
    for kind, listed in seen.errors.items():
        error = shown(f"{kind}: {listed.error}")
        _line(f"left alone, because no event can be made of them ({error})", listed)
    if Skip.HELD_BACK in seen.skipped:
        cure = "RETRY_JOB_CAP_AFTER_DOWNTIME" if seen.after_downtime else "RETRY_JOB_LIMIT"
        after = ", after a downtime of the sweeper" * seen.after_downtime
        typer.echo(f"  the limit of one run is {seen.limit} now{after}: see {cure}")


def _line(words: str, listed: Listed) -> None:
    if not listed.count:
        return
    named = ", ".join(map(shown, listed.first))
    more = ", ..." * (listed.count > len(listed.first))
    typer.echo(f"  {listed.count:>6} {words}: {named}{more}")


def preview_fields(seen: Preview) -> dict[str, Any]:
    """Give the same for machines."""
    return {
        "collection": seen.collection,
        "stuck": seen.stuck,
        "failed_max_retries": seen.tally.given_up,
        "failed_permanently": seen.tally.permanent,
        "requeue": _listed(seen.requeue),
        "give_up": _listed(seen.give_up),
        "skipped": {why.value: _listed(listed) for why, listed in seen.skipped.items()},
        "errors": {
            kind: {**_listed(listed), "error": listed.error} for kind, listed in seen.errors.items()
        },
        "limit": seen.limit,
        "down": seen.is_down,
        "did_you_mean": seen.near,
    }


def _listed(listed: Listed) -> dict[str, Any]:
    return {"count": listed.count, "first": listed.first}
