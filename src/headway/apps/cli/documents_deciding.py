"""What `headway documents` changes: shown before it is done, and said when it is."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import typer

from headway.apps.cli.codes import CANNOT_GO_ON, NOT_AS_PROMISED
from headway.apps.cli.documents_shown import how_far, show_meant, show_report
from headway.apps.cli.engines import on_engine
from headway.apps.cli.operator import stored_documents
from headway.apps.cli.record import record_of_changes
from headway.apps.cli.screen import bar, many, say_on_ctrl_c
from headway.assembly.retrying import CLOCK
from headway.core.ahead import read_ahead
from headway.core.decision import Decision, archive_of
from headway.core.lifecycle import Lifecycle
from headway.core.showing import shown
from headway.ports.engine import Engine
from headway.runtime.documents_choosing import PAGE, Choice, read_states
from headway.runtime.documents_report import DocumentsReport

_DOING = {
    Decision.RESET: "resetting",
    Decision.RETRY: "scheduling",
    Decision.PURGE: "removing",
    Decision.ARCHIVE: "archiving",
    Decision.RESTORE: "restoring",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was typed."""

    decision: Decision
    collection: str
    ids: Sequence[str] = ()
    everything: bool = False
    statuses: Sequence[str] = ()
    error_type: str | None = None
    limit: int | None = None
    at: str | None = None
    dry_run: bool = False
    ask: bool = False
    stuck: bool = False
    services: Sequence[str] = ()


def decide(bus: str | None, order: Order) -> None:
    """Carry out a decision about documents, with a bar, and say what came of it."""
    decision = order.decision
    at = None if order.at is None else read_ahead("--at", order.at, CLOCK.now())
    so_far: DocumentsReport | None = None

    def tell(report: DocumentsReport) -> None:
        nonlocal so_far
        so_far = report
        seen = report.chosen + report.refused.total()
        if report.planned:
            move(report.done, report.chosen)
        elif seen > PAGE:
            look(seen, None)

    def before(report: DocumentsReport) -> None:
        looking.close()
        if order.ask:
            _ask(report)

    nothing_such = order.error_type is not None

    async def change(engine: Engine) -> DocumentsReport:
        nonlocal nothing_such
        documents = stored_documents(engine, order.services)
        is_restore = decision is Decision.RESTORE
        place = archive_of(order.collection) if is_restore else order.collection
        nothing_such = nothing_such or not await documents.exists(place)
        return await documents.decide(
            decision,
            order.collection,
            _choice(order, documents.rule_of(order.collection).lifecycle),
            at=at,
            dry_run=order.dry_run,
            before=before,
            on_progress=tell,
        )

    with (
        record_of_changes(),
        say_on_ctrl_c(lambda: how_far(decision, order.collection, so_far)),
        bar(_DOING[decision]) as move,
        ExitStack() as looking,
    ):
        look = looking.enter_context(bar("looking"))
        report = on_engine(bus, change)
    show_report(report)
    if report.refused or report.missing or (not report.chosen and nothing_such):
        raise typer.Exit(NOT_AS_PROMISED)


def _choice(order: Order, lifecycle: Lifecycle) -> Choice:
    return Choice(
        ids=order.ids,
        states=read_states(order.statuses, lifecycle),
        error_type=order.error_type,
        limit=order.limit,
        everything=order.everything,
        stuck=order.stuck,
    )


def _ask(meant: DocumentsReport) -> None:
    words = f"{many(meant.chosen, 'document')} of {shown(meant.collection)}"
    if not sys.stdin.isatty():
        typer.echo(
            f"headway: {words} would be removed for good, and nobody is here to be asked: say "
            "--yes, or look first with --dry-run",
            err=True,
        )
        raise typer.Exit(CANNOT_GO_ON)
    show_meant(meant, err=True)
    if not typer.confirm(f"Remove {words} for good?", err=True):
        typer.echo("Nothing was removed.", err=True)
        raise typer.Exit(NOT_AS_PROMISED)
