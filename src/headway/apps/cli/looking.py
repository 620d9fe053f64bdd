"""What `headway failed` shows and copies; nothing is changed."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import typer

from headway.apps.cli.engines import on_engine
from headway.apps.cli.exporting import Export
from headway.apps.cli.letters import show_letters
from headway.apps.cli.operator import failed_queues
from headway.apps.cli.screen import as_json, bar, many, say_on_ctrl_c, show_table, when
from headway.core.letter import Letter
from headway.ports.engine import Engine


def show_queues(bus: str | None, *, machine: bool) -> None:
    """List the failed queues."""
    found = on_engine(bus, _summed_up)
    if machine:
        typer.echo(as_json(found, indent=2))
    elif found:
        rows = [
            (q["queue"], str(q["letters"]), when(q["oldest"]), when(q["newest"])) for q in found
        ]
        show_table(["queue", "letters", "oldest", "newest"], rows, numbers=["letters"])
        for each in found:
            if each["superseded"]:
                count = many(each["superseded"], "letter")
                typer.echo(f"\nsuperseded: {count} of {each['queue']} (see headway failed inspect)")
    else:
        typer.echo("There is no failed queue yet: an engine gets them when services are started.")


async def _summed_up(engine: Engine) -> Sequence[dict[str, Any]]:
    queues = failed_queues(engine)
    found = []
    for each in await queues.list():
        fields = asdict(each)
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
) -> None:
    """Show letters, the oldest first."""

    async def find(engine: Engine) -> tuple[Sequence[Letter], Collection[str]]:
        queues = failed_queues(engine)
        letters = await queues.inspect(
            queue, limit=limit, after=after, letter_id=letter_id, error_type=error_type
        )
        return letters, await queues.superseded(letters)

    found, superseded = on_engine(bus, find)
    if machine:
        typer.echo(as_json([_with_all_fields(each, superseded) for each in found], indent=2))
        return
    show_letters(found, superseded, tracebacks=tracebacks)
    if len(found) == limit:
        typer.echo(f"There may be more: --after {found[-1].letter_id}, or a larger --limit.")
    elif not found:
        typer.echo("No letter there fits.")


def _with_all_fields(letter: Letter, superseded: Collection[str]) -> dict[str, Any]:
    return {**msgspec.structs.asdict(letter), "superseded": letter.letter_id in superseded}


def export_letters(
    bus: str | None,
    queue: str,
    *,
    path: Path | None,
    force: bool,
    limit: int | None,
    ids: Collection[str],
    error_type: str | None,
) -> None:
    """Write letters as JSON Lines."""
    into = Export(path, force=force)

    async def write(engine: Engine) -> None:
        queues = failed_queues(engine)
        name = await queues.find(queue)
        of = sum(each.letters for each in await queues.list() if each.name == name)
        found = queues.export(name, limit=limit, ids=ids, error_type=error_type)
        async for letter in found:
            into.write(as_json(letter))
            move(into.lines, min(of, limit or of))

    with say_on_ctrl_c(into.how_far), bar("exporting") as move, into:
        on_engine(bus, write)
    if into.path is not None:
        typer.echo(f"{many(into.lines, 'letter')} written to {into.path}", err=True)
