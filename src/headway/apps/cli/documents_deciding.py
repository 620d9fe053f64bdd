"""What `headway documents` changes: shown before it is done, and said when it is."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import typer

from headway.adapters.system.clock import CLOCK
from headway.apps.cli.asking import confirmed
from headway.apps.cli.calling import bus_words, pasteable
from headway.apps.cli.codes import CANNOT_GO_ON, NOT_AS_PROMISED
from headway.apps.cli.documents_shown import how_far, show_meant, show_report
from headway.apps.cli.documents_there import nothing_in
from headway.apps.cli.engines import on_engine
from headway.apps.cli.lifecycles import are_named
from headway.apps.cli.operator import stored_documents
from headway.apps.cli.output import after_a_change
from headway.apps.cli.record import record_of_changes
from headway.apps.cli.screen import bar, many, say_on_ctrl_c
from headway.core.ahead import read_ahead
from headway.core.decision import Decision
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
    ids: Sequence[str] | None = None
    everything: bool = False
    statuses: Sequence[str] = ()
    error_type: str | None = None
    limit: int | None = None
    at: str | None = None
    reason: str = ""
    dry_run: bool = False
    ask: bool = False
    stuck: bool = False
    services: Sequence[str] = ()


def decide(bus: str | None, order: Order) -> None:
    """Carry out a decision about documents, with a bar, and say what came of it."""
    decision = order.decision
    at = None if order.at is None else read_ahead("--at", order.at, CLOCK.now())
    so_far: DocumentsReport | None = None
    has_begun = False

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
        nonlocal has_begun
        has_begun = True

    async def change(engine: Engine) -> tuple[DocumentsReport, str, bool]:
        documents = stored_documents(engine, order.services)
        nothing = await nothing_in(documents, order.collection, decision)
        report = await documents.decide(
            decision,
            order.collection,
            _choice(order, documents.rule_of(order.collection).lifecycle),
            at=at,
            reason=order.reason,
            dry_run=order.dry_run,
            before=before,
            on_progress=tell,
        )
        return report, nothing, documents.is_swept(order.collection)

    with (
        record_of_changes(),
        say_on_ctrl_c(lambda: how_far(decision, order.collection, so_far if has_begun else None)),
        bar(_DOING[decision]) as move,
        ExitStack() as looking,
    ):
        look = looking.enter_context(bar("looking"))
        report, nothing, is_swept = on_engine(bus, change)
    history = pasteable("documents", "history", order.collection, *bus_words(bus))
    with after_a_change(history, made=report.done > 0 and not report.dry_run):
        show_report(report, sweep=_sweep(order, bus) if is_swept else None, nothing=nothing)
    nothing_such = not report.chosen and (nothing or order.error_type is not None)
    if report.refused or report.missing or nothing_such:
        raise typer.Exit(NOT_AS_PROMISED)


def _sweep(order: Order, bus: str | None) -> str:
    """Write the command that sweeps what was meant, as it can be typed here."""
    services = order.services or ([] if are_named(()) else ["MODULE:SERVICE"])
    words = ["sweep", *services, "--once", "--collection", order.collection]
    return pasteable(*words, *bus_words(bus))


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
    if not confirmed(f"Remove {words} for good?"):
        typer.echo("Nothing was removed.", err=True)
        raise typer.Exit(NOT_AS_PROMISED)
