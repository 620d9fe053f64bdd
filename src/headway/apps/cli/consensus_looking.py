"""What `headway consensus status` and `search` show."""

import asyncio
import shlex
from contextlib import closing
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from headway.apps.cli.calling import own_name
from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.consensus_away import said_in_one_line_of
from headway.apps.cli.consensus_place import (
    Place,
    find_place,
    refuse_empty,
    refuse_without_model,
)
from headway.apps.cli.screen import as_json, harmless, many, show_indented, show_table, when
from headway.core.errors import ConfigurationError
from headway.core.showing import shown
from headway.systems.consensus.search import Hit, open_search
from headway.systems.consensus.status import Status, read_status

_STATES = ("processed", "pending", "failed", "failed_max_retries")
_NUMBER = 4


def show_status(data: Path | None, bus: str | None, *, machine: bool) -> None:
    """Show where everything is."""
    place = find_place(data, bus)
    refuse_empty(place)
    found = asyncio.run(read_status(place.bus))
    if machine:
        typer.echo(
            as_json(
                {
                    "collections": {each.collection: each.states for each in found.collections},
                    "waiting": found.waiting,
                    "failed": {each.queue: each.letters for each in found.failed},
                    "without_text": found.without_text,
                    "duplicates": found.duplicates,
                    "differing": found.differing,
                },
                indent=2,
            )
        )
        return
    show_found(found)
    show_letters_of(found, place)


def show_found(found: Status) -> None:
    """Show documents by their states, and what waits."""
    known = [
        state for state in _STATES if any(each.states.get(state) for each in found.collections)
    ]
    others = {state for each in found.collections for state in each.states} - set(_STATES)
    states = [*known, *sorted(others)]
    rows = [
        (each.collection, str(each.documents), *(str(each.states.get(s, 0) or "") for s in states))
        for each in found.collections
    ]
    show_table(["", "in all", *states], rows, numbers=["in all", *states])
    waiting = sum(found.waiting.values())
    typer.echo()
    if found.without_text:
        empty = many(found.without_text, "thread has", "threads have")
        typer.echo(f"{empty} no text, and so no summary.")
    if found.duplicates:
        typer.echo(
            f"{many(found.duplicates, 'message was', 'messages were')} passed over, because "
            "another in the archive has the same id, date, sender and subject; with another "
            f"text: {found.differing or 'none'}."
        )
    if waiting:
        queues = ", ".join(f"{number} in {name}" for name, number in found.waiting.items())
        typer.echo(f"{many(waiting, 'event')} on the way: {queues}")
    else:
        typer.echo("Nothing is on its way any more.")


def show_letters_of(found: Status, place: Place) -> int:
    """Show the failed queues in which there is something, and how to look; count the letters."""
    letters = sum(each.letters for each in found.failed)
    for each in found.failed:
        if each.letters:
            since = f", the oldest since {when(each.oldest)}" if each.oldest else ""
            typer.echo(f"{many(each.letters, 'letter')} in {each.queue}{since}")
            typer.echo(f"  {command(place, 'failed', 'inspect', each.queue)}")
    return letters


def command(place: Place, *words: str) -> str:
    """Give a command for the engine of a pipeline, as it can be pasted."""
    bus = [] if place.is_named else ["--bus", place.bus]
    return f"{own_name()} {shlex.join([*words, *bus])}"


def show_hits(question: str, data: Path | None, *, top: int, machine: bool) -> None:
    """Search, and show what was found."""
    place = find_place(data, None)
    settings = place.settings
    refuse_without_model(settings)
    if not settings.vectors and not settings.vectors_file.exists():
        raise ConfigurationError(
            f"nothing is in {settings.data} that could be searched: begin with headway consensus "
            "ingest PATH, or name another folder with --data"
        )
    with said_in_one_line_of(settings), closing(open_search(settings)) as search:
        hits = search.find(question, top)
    if machine:
        typer.echo(as_json([_fields(each) for each in hits], indent=2))
    else:
        _show(hits)
    if not hits:
        typer.echo(f"nothing speaks of {shown(question)!r}", err=True)
        raise typer.Exit(NOT_AS_PROMISED)


def _fields(hit: Hit) -> dict[str, object]:
    passage = hit.passage
    return {
        "score": round(hit.score, 4),
        "has_words": hit.has_words,
        "message_doc_id": hit.message_doc_id,
        "message_id": passage.message_id,
        "thread_id": hit.thread_id,
        "subject": passage.subject,
        "from": passage.sender,
        "date": passage.date,
        "text": passage.text,
    }


def _show(hits: list[Hit]) -> None:
    console = Console(highlight=False)
    if hits and not any(each.has_words for each in hits):
        typer.echo("None of these has a word of your question; they are the nearest in meaning.\n")
    for number, hit in enumerate(hits, 1):
        passage = hit.passage
        subject = harmless(passage.subject or "(no subject)")
        subject.stylize("bold")
        show_indented(console, subject, _NUMBER, first=Text(f"{number:>2}  "))
        about = f"{passage.sender}, {passage.date[:10]} · thread {hit.thread_id}"
        dim = harmless(about)
        dim.stylize("bright_black")
        show_indented(console, dim, _NUMBER)
        text = Text()
        for part, is_word in hit.snippet.parts():
            text.append(shown(part), "bold green" if is_word else "")
        show_indented(console, text, _NUMBER)
        console.print()
    if hits:
        typer.echo(f"{own_name()} consensus summary THREAD: what came of the discussion")
