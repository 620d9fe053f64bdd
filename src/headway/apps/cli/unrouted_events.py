"""What `headway unrouted` shows and changes."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

import typer

from headway.apps.cli.asking import confirmed
from headway.apps.cli.calling import bus_words, pasteable
from headway.apps.cli.codes import CANNOT_GO_ON, NOT_AS_PROMISED
from headway.apps.cli.engines import is_store_there, on_engine
from headway.apps.cli.history import show_changes
from headway.apps.cli.operator import unrouted_events
from headway.apps.cli.output import after_a_change
from headway.apps.cli.record import record_of_changes
from headway.apps.cli.screen import as_json, many, say_on_ctrl_c, show_table, when
from headway.core.letter import kept
from headway.core.secrets import HIDDEN, bytes_without_secrets
from headway.core.showing import shown
from headway.ports.unrouted import MALFORMED, UnroutedEvent
from headway.runtime.history import Subject
from headway.runtime.unrouted import UnroutedChange, UnroutedEvents

T = TypeVar("T")
_DONE = {"route": "moved to queues", "purge": "removed"}


def show_types(bus: str | None, *, machine: bool) -> None:
    """List the types of unrouted events."""
    found = on_engine(bus, lambda engine: unrouted_events(engine).list(), store=False)
    if machine:
        typer.echo(as_json([asdict(each) for each in found], indent=2))
        return
    if not found:
        typer.echo("No event is unrouted.")
        return
    rows = [
        (each.event_type, str(each.events), when(each.oldest), each.meant or "-") for each in found
    ]
    show_table(["type", "events", "oldest", "did you mean"], rows, numbers=["events"])
    typer.echo("\nThey move to a service that handles the type when it starts.")
    if any(each.event_type == MALFORMED for each in found):
        typer.echo(
            f"Events listed as {MALFORMED} have no type, or cannot be read: no service gets them.\n"
            f"Look at them with headway unrouted show '{MALFORMED}', and remove them with headway "
            f"unrouted purge '{MALFORMED}'."
        )


def show_events(
    bus: str | None, event_type: str | None, *, limit: int, raw: bool, machine: bool
) -> None:
    """Show unrouted events, the oldest first; without secrets, unless it is asked for them."""
    stored = on_engine(
        bus, lambda engine: unrouted_events(engine).show(event_type, limit=limit), store=False
    )
    found = stored
    if not raw:
        found = [replace(each, body=bytes_without_secrets(each.body)) for each in stored]
    if machine:
        typer.echo(as_json([_as_dict(each) for each in found], indent=2))
        return
    for each in found:
        typer.echo(
            f"{shown(each.travel.operation)}  {shown(each.event_type)}  {when(each.at)}\n"
            f"  {shown(each.body.decode(errors='replace'))}"
        )
    if not found:
        typer.echo("No such event is unrouted.")
    elif len(found) == limit:
        typer.echo("There may be more: use a larger --limit.")
    if found != stored:
        typer.echo(f"Secrets are shown as {HIDDEN}; --raw shows them.", err=True)


def _as_dict(event: UnroutedEvent) -> dict[str, Any]:
    original, in_base64 = kept(event.body)
    return {
        "event_type": event.event_type,
        "event_id": event.travel.operation,
        "at": event.at,
        "event": original,
        "base64": in_base64,
    }


def route_events(
    bus: str | None, types: Sequence[str] | None, *, reason: str, dry_run: bool, machine: bool
) -> None:
    """Move events to the queues that take them by now, and say what is left."""
    _change(
        bus,
        lambda events: events.route(types or None, reason=reason, dry_run=dry_run),
        machine=machine,
    )


def purge_events(
    bus: str | None,
    types: Sequence[str] | None,
    *,
    ids: Sequence[str] | None,
    reason: str,
    dry_run: bool,
    ask: bool,
    machine: bool,
) -> None:
    """Remove events, after a question, and say what came of it."""
    _change(
        bus,
        lambda events: events.purge(
            types or None,
            ids=ids or None,
            reason=reason,
            dry_run=dry_run,
            before=_ask if ask else None,
        ),
        machine=machine,
    )


def _change(
    bus: str | None,
    change: Callable[[UnroutedEvents], Awaitable[UnroutedChange]],
    *,
    machine: bool,
) -> None:
    with record_of_changes(), say_on_ctrl_c(lambda: "see 'headway unrouted history'"):
        made = _with_history(bus, change)
    history = pasteable("unrouted", "history", *bus_words(bus))
    with after_a_change(history, made=made.done > 0 and not made.dry_run):
        if machine:
            typer.echo(as_json(asdict(made), indent=2))
        else:
            _show(made)
        if made.left or made.missing or made.stayed:
            raise typer.Exit(NOT_AS_PROMISED)


def _with_history(bus: str | None, body: Callable[[UnroutedEvents], Awaitable[T]]) -> T:
    """Do something that reads or writes the history: on a broker, that of the store if it exists.

    Before the first service has made the store, the broker keeps the history.
    """
    return on_engine(bus, lambda engine: body(unrouted_events(engine)), store=is_store_there(bus))


def _show(change: UnroutedChange) -> None:
    would = "would be " * change.dry_run
    typer.echo(f"{many(change.done, 'event')} {would}{_DONE[change.what]}.")
    if change.gone:
        typer.echo(
            f"{many(change.gone, 'event')} had gone: a service or another operator moved or "
            "removed them first."
        )
    if change.stayed:
        typer.echo(
            f"{many(change.stayed, 'event')} stayed: no queue took them. Start the service that "
            "takes them again."
        )
    for event_type, events in change.chosen.items():
        typer.echo(f"  {many(events, 'event')} of {shown(event_type)}")
    for event_type, meant in change.left.items():
        if event_type == MALFORMED:
            typer.echo(
                f"  {MALFORMED}: these events cannot be routed. Look at them with headway unrouted "
                f"show '{MALFORMED}', and purge them."
            )
            continue
        hint = f" Did you mean {shown(meant)}?" if meant else ""
        typer.echo(
            f"  {shown(event_type)} still has no queue: start a service that takes it.{hint}"
        )
    for each in change.missing:
        typer.echo(f"  {shown(each)}: no such event is unrouted")


def _ask(change: UnroutedChange) -> None:
    words = (
        f"{many(sum(change.chosen.values()), 'event')} of {', '.join(map(shown, change.chosen))}"
    )
    if not sys.stdin.isatty():
        typer.echo(
            f"headway: {words} would be removed for good. Confirm with --yes, or look first with "
            "--dry-run.",
            err=True,
        )
        raise typer.Exit(CANNOT_GO_ON)
    if not confirmed(f"Remove {words} for good?"):
        typer.echo("Nothing was removed.", err=True)
        raise typer.Exit(NOT_AS_PROMISED)


def show_history(bus: str | None, *, limit: int, machine: bool) -> None:
    """Show who routed or purged unrouted events."""
    found = _with_history(bus, lambda events: events.history(limit))
    show_changes(found, Subject.UNROUTED, machine=machine)
