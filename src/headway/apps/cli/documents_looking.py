"""What `headway documents` shows and copies; nothing is changed."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.documents_shown import show_changes
from headway.apps.cli.engines import on_engine
from headway.apps.cli.exporting import Export
from headway.apps.cli.lifecycles import is_declared
from headway.apps.cli.operator import stored_documents
from headway.apps.cli.screen import as_json, bar, many, say_on_ctrl_c
from headway.apps.cli.stuck import show_standings, warn_of_flag
from headway.assembly.retrying import CLOCK
from headway.core.showing import shown
from headway.ports.engine import Engine
from headway.runtime.documents import StoredDocuments
from headway.runtime.documents_choosing import PAGE, Choice, read_states
from headway.runtime.documents_stuck import Standing, StuckReport

_NAMED = 20


def show_stuck(
    bus: str | None, collection: str, services: Sequence[str], *, limit: int, machine: bool
) -> None:
    """Show what is stuck and what was given up."""

    async def find(engine: Engine) -> tuple[StuckReport, Sequence[str], str | None]:
        documents = stored_documents(engine, services)
        flag = None
        if not is_declared(services, collection):
            flag = await documents.likely_flag(collection)
        found = await documents.stuck(collection, limit=limit, on_progress=tell)
        others = () if await documents.exists(collection) else await _others(documents)
        return found, others, flag

    def tell(seen: int, of: int) -> None:
        if of > PAGE:
            move(seen, of)

    with say_on_ctrl_c(lambda: "nothing was changed"), bar("looking") as move:
        report, others, flag = on_engine(bus, find)
    if machine:
        listed = [*report.first_given_up, *report.first_stuck]
        typer.echo(as_json([_fields(each) for each in listed], indent=2))
    elif others:
        typer.echo(_nothing_in(collection, others))
    else:
        show_standings(report, CLOCK.now())
    if flag is not None:
        warn_of_flag(collection, flag)


async def _others(documents: StoredDocuments) -> Sequence[str]:
    """Name what there is instead of a collection that is not."""
    return await documents.collections() or ("none",)


def _nothing_in(collection: str, others: Sequence[str]) -> str:
    near = get_close_matches(collection, others, n=1)
    meant = f"did you mean {shown(near[0])}? " if near else ""
    there = ", ".join(map(shown, others[:_NAMED])) + ", ..." * (len(others) > _NAMED)
    return f"There is no document in {shown(collection)}: {meant}There are: {there}"


def _fields(standing: Standing) -> dict[str, Any]:
    return {
        "_id": standing.document_id,
        "status": standing.state.value,
        "attemptCount": standing.attempts,
        "maxAttempts": standing.max_attempts,
        "lastAttemptTime": standing.last_attempt,
        "sweep": standing.sweep,
        "why": standing.why,
        "due": standing.prospect.due,
        "lastError": standing.last_error,
    }


def export_documents(
    bus: str | None,
    collection: str,
    services: Sequence[str],
    *,
    path: Path | None,
    force: bool,
    limit: int | None,
    ids: Sequence[str],
    statuses: Sequence[str],
    error_type: str | None,
) -> None:
    """Write documents as JSON Lines."""
    into = Export(path, force=force, noun="document", kept="the documents are as they were")

    async def write(engine: Engine) -> Sequence[str]:
        documents = stored_documents(engine, services)
        states = read_states(statuses, documents.rule_of(collection).lifecycle)
        choice = Choice(ids=ids, states=states, error_type=error_type, limit=limit)
        async for document in documents.export(collection, choice):
            into.write(as_json(document))
            if into.path is not None and into.lines % PAGE == 0:
                move(into.lines, limit)
        return () if await documents.exists(collection) else await _others(documents)

    with say_on_ctrl_c(into.how_far), bar("exporting") as move, into:
        others = on_engine(bus, write)
    if into.path is not None:
        typer.echo(f"{many(into.lines, 'document')} written to {into.path}", err=True)
    if others:
        typer.echo(_nothing_in(collection, others), err=True)
    if not into.lines and (ids or error_type is not None or others):
        raise typer.Exit(NOT_AS_PROMISED)


def show_history(bus: str | None, *, limit: int, machine: bool) -> None:
    """Show who changed which documents."""
    found = on_engine(bus, lambda engine: stored_documents(engine).history(limit))
    if machine:
        typer.echo(as_json(found, indent=2))
    else:
        show_changes(found)
