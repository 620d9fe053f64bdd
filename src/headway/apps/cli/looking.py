"""What `headway failed` shows and copies; nothing is changed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.console import Console

from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.engines import on_engine
from headway.apps.cli.exporting import Export
from headway.apps.cli.failed_there import why_none
from headway.apps.cli.history import show_changes
from headway.apps.cli.letters import show_letters
from headway.apps.cli.operator import failed_queues
from headway.apps.cli.screen import as_json, bar, many, say_on_ctrl_c, show_table, when
from headway.core.letter import Letter, screened
from headway.core.secrets import HIDDEN
from headway.core.showing import shown
from headway.ports.engine import Engine
from headway.runtime.history import Subject

_LETTERS, _AGE = 10, 23
"""Columns that these take in the table, each with a gap."""
_ONLY_THE_STORE = (
    "only the store of their services can tell; set HEADWAY_STORE as for the workers, if they have "
    "one"
)


def show_queues(bus: str | None, *, machine: bool) -> None:
    """List the failed queues."""
    found = on_engine(bus, _summed_up)
    if machine:
        typer.echo(as_json(found, indent=2))
    elif found:
        # Some engines never know the newest: then there is no column.
        ages = [age for age in ("oldest", "newest") if any(q[age] for q in found)] or ["oldest"]
        room = Console().width - max(len(shown(q["queue"])) for q in found) - _LETTERS
        if room < len(ages) * _AGE:  # the name of a queue is to be copied, so it goes before
            ages = ages[:1]
        rows = [(q["queue"], str(q["letters"]), *(when(q[age]) for age in ages)) for q in found]
        whole = ["queue"] if room >= _AGE else []
        show_table(["queue", "letters", *ages], rows, numbers=["letters"], whole=whole)
        for each in found:
            _remark(each)
    else:
        typer.echo("There is no failed queue yet: an engine gets them when services are started.")


def _remark(queue: Mapping[str, Any]) -> None:
    """Say what does not go into the table."""
    name = shown(queue["queue"])
    if queue["being_read"]:
        typer.echo(f"\n{name} is being read by somebody: what they have in hand is not counted")
    if queue["superseded"]:
        count = many(queue["superseded"], "letter")
        typer.echo(f"\nsuperseded: {count} of {name} (see headway failed inspect)")
    elif queue["superseded"] is None and queue["has_store"] and queue["letters"]:
        typer.echo(f"\nsuperseded: unknown of {name}: {_ONLY_THE_STORE}")


async def _summed_up(engine: Engine) -> Sequence[dict[str, Any]]:
    queues = failed_queues(engine)
    found = []
    for each in await queues.list():
        fields = asdict(each)
        count = None
        if queues.knows_superseded:
            count = await queues.count_superseded(each.name) if each.letters else 0
        found.append({"queue": fields.pop("name"), **fields, "superseded": count})
    return found


def show_some(
    bus: str | None,
    queue: str,
    *,
    limit: int,
    letter_id: str | None,
    after: str | None,
    error_type: str | None,
    tracebacks: bool,
    machine: bool,
    raw: bool,
) -> None:
    """Show letters, the oldest first; without secrets, unless it is asked for them."""
    why = ""

    async def find(engine: Engine) -> tuple[Sequence[Letter], Mapping[str, str] | None]:
        nonlocal why
        queues = failed_queues(engine)
        one = letter_id
        if letter_id is not None:
            (one,) = await queues.complete(queue, [letter_id])
        letters = await queues.inspect(
            queue, limit=limit, after=after, letter_id=one, error_type=error_type
        )
        why = await why_none(queues, queue, error_type, letters or after or letter_id)
        return letters, await queues.superseded(letters) if queues.knows_superseded else None

    stored, superseded = on_engine(bus, find)
    found = stored if raw else [screened(each) for each in stored]
    if machine:
        typer.echo(as_json([_with_all_fields(each, superseded) for each in found], indent=2))
    elif not why:
        _show_found(found, superseded, limit=limit, tracebacks=tracebacks)
        if found != stored:
            typer.echo(f"Secrets are shown as {HIDDEN}; --raw shows them.", err=True)
    if why:
        typer.echo(why, err=True)
    if letter_id is not None and not found:
        raise typer.Exit(NOT_AS_PROMISED)


def _show_found(
    found: Sequence[Letter],
    superseded: Mapping[str, str] | None,
    *,
    limit: int,
    tracebacks: bool,
) -> None:
    show_letters(found, superseded or {}, tracebacks=tracebacks)
    if found and superseded is None:
        typer.echo(f"Which of them are superseded is unknown: {_ONLY_THE_STORE}")
    if len(found) == limit:
        typer.echo(f"There may be more: --after {found[-1].letter_id}, or a larger --limit.")
    elif not found:
        typer.echo("No letter there fits.")


def _with_all_fields(letter: Letter, superseded: Mapping[str, str] | None) -> dict[str, Any]:
    is_superseded = None if superseded is None else letter.letter_id in superseded
    why = (superseded or {}).get(letter.letter_id)
    return {**msgspec.structs.asdict(letter), "superseded": is_superseded, "why_superseded": why}


def export_letters(
    bus: str | None,
    queue: str,
    *,
    path: Path | None,
    force: bool,
    limit: int | None,
    ids: Sequence[str] | None,
    error_type: str | None,
) -> None:
    """Write letters as JSON Lines."""
    into = Export(path, force=force)
    missing: list[str] = []
    why = ""

    async def write(engine: Engine) -> None:
        nonlocal why
        queues = failed_queues(engine)
        name = await queues.find(queue)
        of = sum(each.letters for each in await queues.list() if each.name == name)
        full = ids and await queues.complete(name, ids)
        left = set(full or ())
        found = queues.export(name, limit=limit, ids=full, error_type=error_type)
        async for letter in found:
            into.write(as_json(letter))
            move(into.lines, min(of, limit or of))
            left.discard(letter.letter_id)
        if into.lines != limit:
            missing.extend(sorted(left))
        why = "" if into.lines else await why_none(queues, name, error_type, ids)

    with say_on_ctrl_c(into.how_far), bar("exporting") as move, into.opened():
        on_engine(bus, write)
    if into.path is not None:
        typer.echo(f"{many(into.lines, 'letter')} written to {into.path}", err=True)
    if why:
        typer.echo(why, err=True)
    for one in missing:
        fits = "in the queue" if error_type is None else f"in the queue with a {shown(error_type)}"
        typer.echo(f"{shown(one)} is not {fits}", err=True)
    if missing:
        raise typer.Exit(NOT_AS_PROMISED)


def show_history(bus: str | None, queue: str | None, *, limit: int, machine: bool) -> None:
    """Show who changed failed queues."""
    with say_on_ctrl_c(lambda: "nothing was changed"):
        found = on_engine(bus, lambda engine: failed_queues(engine).history(queue, limit))
    show_changes(found, Subject.QUEUE, machine=machine)
