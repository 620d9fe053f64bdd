"""What `headway documents` shows and copies; nothing is changed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from headway.adapters.system.clock import CLOCK
from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.documents_shown import show_archivings
from headway.apps.cli.documents_there import nothing_in
from headway.apps.cli.engines import on_engine
from headway.apps.cli.exporting import Export
from headway.apps.cli.history import show_changes
from headway.apps.cli.lifecycles import are_named, is_declared
from headway.apps.cli.operator import stored_documents
from headway.apps.cli.screen import as_json, bar, many, say_on_ctrl_c
from headway.apps.cli.stuck import show_standings, warn_of_flag, warn_of_services
from headway.core.decision import archived_from
from headway.core.secrets import without_secrets
from headway.core.writes import Document
from headway.ports.engine import Engine
from headway.runtime.documents_choosing import PAGE, Choice, read_states
from headway.runtime.documents_stuck import Standing, StuckReport
from headway.runtime.history import Subject


def show_stuck(
    bus: str | None, collection: str, services: Sequence[str], *, limit: int, machine: bool
) -> None:
    """Show what is stuck, what was given up, and what failed permanently."""
    of = archived_from(collection)

    async def find(engine: Engine) -> tuple[StuckReport, Sequence[Document], str, str | None]:
        documents = stored_documents(engine, services)
        declared = is_declared(services, collection)
        flag = None if declared else await documents.likely_flag(collection)
        nothing = await nothing_in(documents, collection, is_declared=declared)
        report = await documents.stuck(collection, limit=limit, on_progress=tell)
        archivings = [] if of is None else await documents.archivings(of)
        return report, archivings, nothing, flag

    def tell(seen: int, of: int) -> None:
        if of > PAGE:
            move(seen, of)

    known = are_named(services) or of is not None
    with say_on_ctrl_c(lambda: "nothing was changed"), bar("looking") as move:
        report, archivings, nothing, flag = on_engine(bus, find)
    if machine:
        listed = [*report.first_given_up, *report.first_permanent, *report.first_stuck]
        typer.echo(as_json([_fields(each) for each in listed], indent=2))
    elif not nothing:
        show_standings(report, CLOCK.now(), known=known)
        show_archivings(archivings)
    if nothing:
        typer.echo(nothing, err=True)
        raise typer.Exit(NOT_AS_PROMISED)
    if flag is not None:
        warn_of_flag(collection, flag)
    if report.stuck and not known:
        warn_of_services(collection)


def _fields(standing: Standing) -> dict[str, Any]:
    return {
        "_id": standing.document_id,
        "status": standing.state.value,
        "attemptCount": standing.attempts,
        "maxAttempts": standing.max_attempts,
        "lastAttemptTime": standing.last_attempt,
        "createdAt": standing.created,
        "sweep": standing.sweep,
        "why": standing.why,
        "due": standing.prospect.due,
        "lastError": without_secrets(standing.last_error),
        "permanentFailure": standing.permanent,
    }


def export_documents(
    bus: str | None,
    collection: str,
    services: Sequence[str],
    *,
    path: Path | None,
    force: bool,
    limit: int | None,
    ids: Sequence[str] | None,
    statuses: Sequence[str],
    error_type: str | None,
) -> None:
    """Write documents as JSON Lines."""
    into = Export(path, force=force, noun="document", kept="the documents are as they were")

    async def write(engine: Engine) -> str:
        documents = stored_documents(engine, services)
        states = read_states(statuses, documents.rule_of(collection).lifecycle)
        choice = Choice(ids=ids, states=states, error_type=error_type, limit=limit)
        async for document in documents.export(collection, choice):
            into.write(as_json(document))
            if into.path is not None and into.lines % PAGE == 0:
                move(into.lines, limit)
        return await nothing_in(documents, collection)

    with say_on_ctrl_c(into.how_far), bar("exporting") as move, into.opened():
        nothing = on_engine(bus, write)
    if into.path is not None:
        typer.echo(f"{many(into.lines, 'document')} written to {into.path}", err=True)
    if nothing:
        typer.echo(nothing, err=True)
    if not into.lines and (ids or error_type is not None or nothing):
        raise typer.Exit(NOT_AS_PROMISED)


def show_history(bus: str | None, collection: str | None, *, limit: int, machine: bool) -> None:
    """Show who changed which documents."""
    with say_on_ctrl_c(lambda: "nothing was changed"):
        found = on_engine(bus, lambda engine: stored_documents(engine).history(limit, collection))
    show_changes(found, Subject.COLLECTION, machine=machine)
