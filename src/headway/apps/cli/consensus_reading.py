"""What `headway consensus summary` shows."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from headway import connect
from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.consensus_place import Place, find_place, refuse_empty
from headway.apps.cli.screen import as_json, harmless, many, show_table
from headway.core.errors import ConfigurationError
from headway.core.showing import shown
from headway.systems.consensus import twins
from headway.systems.consensus.identity import summary_document_id
from headway.systems.consensus.lifecycles import THREADS

Document = Mapping[str, Any]
_ALL = 10_000_000
_NO_TEXT = "no text"
"""Of a thread whose messages are empty: it is done without a summary."""
_SOME = 8
_WIDEST = 100


def show_threads(data: Path | None, bus: str | None, *, machine: bool) -> None:
    """List all threads, the newest last."""
    place = find_place(data, bus)
    refuse_empty(place)
    threads = sorted(asyncio.run(_threads(place)), key=lambda each: str(each.get("last_date")))
    if machine:
        typer.echo(as_json([_fields(each) for each in threads], indent=2))
        return
    rows = [
        (
            str(each["_id"]),
            str(each.get("last_date") or "-")[:10],
            str(twins.count(each)),
            _of_summary(each),
            str(each.get("subject") or "(no subject)"),
        )
        for each in threads
    ]
    headings = ["thread", "last", "messages", "summary", "subject"]
    show_table(headings, rows, numbers=["messages"], whole=["thread", "last", "summary"])


def show_summary(thread: str, data: Path | None, bus: str | None, *, machine: bool) -> None:
    """Show the summary of the thread that is meant."""
    place = find_place(data, bus)
    refuse_empty(place)
    found, summary = asyncio.run(_summary(place, thread))
    if machine:
        content = None if summary is None else summary.get("content_markdown")
        citations = [] if summary is None else summary.get("citations")
        fields = {**_fields(found), "content_markdown": content, "citations": citations}
        typer.echo(as_json(fields, indent=2))
    elif summary is not None:
        _show(found, summary, place)
    if summary is None:
        why = "no summary yet; see headway consensus status"
        if _of_summary(found) == _NO_TEXT:
            why = "no text: there is nothing to summarize"
        typer.echo(f"thread {found['_id']} has {why}", err=True)
        raise typer.Exit(NOT_AS_PROMISED)


def _of_summary(thread: Document) -> str:
    if thread.get("summary_id"):
        return "yes"
    return _NO_TEXT if thread.get("status") == THREADS.processed else "not yet"


async def _threads(place: Place) -> Sequence[Document]:
    async with connect(place.bus) as headway:
        return await headway.find("threads", limit=_ALL)


async def _summary(place: Place, words: str) -> tuple[Document, Document | None]:
    async with connect(place.bus) as headway:
        thread = meant(words, await headway.find("threads", limit=_ALL))
        if not thread.get("summary_id"):
            return thread, None
        named = summary_document_id(str(thread["summary_id"]))
        found = await headway.find("summaries", {"_id": named}, limit=1)
    return thread, found[0] if found else None


def meant(words: str, threads: Sequence[Document]) -> Document:
    """Find the one thread that is meant, by its id or its subject; or refuse with the nearest."""
    by_id = [each for each in threads if str(each["_id"]).startswith(words.lower())]
    asked = words.casefold()
    by_subject = [each for each in threads if asked in str(each.get("subject") or "").casefold()]
    exactly = [each for each in by_subject if str(each.get("subject")).casefold() == asked]
    for found in (by_id, exactly, by_subject):
        if len(found) == 1:
            return found[0]
    several = by_id or by_subject
    if not several:
        raise ConfigurationError(
            f"THREAD={shown(words)!r} is not accepted: there is no such thread; headway consensus "
            "summary --list names all"
        )
    some = "; ".join(f"{each['_id']} {shown(str(each.get('subject')))}" for each in several[:_SOME])
    more = f"; and {len(several) - _SOME} more" * (len(several) > _SOME)
    raise ConfigurationError(
        f"THREAD={shown(words)!r} is not accepted: it may be one of {len(several)}: {some}{more}"
    )


def _fields(thread: Document) -> dict[str, Any]:
    return {
        "thread_id": thread["_id"],
        "subject": thread.get("subject"),
        "first_date": thread.get("first_date"),
        "last_date": thread.get("last_date"),
        "participants": thread.get("participants"),
        "messages": twins.count(thread),
        "has_consensus": thread.get("has_consensus"),
        "summary_id": thread.get("summary_id"),
    }


def _show(thread: Document, summary: Document, place: Place) -> None:
    console = Console(highlight=False)
    if console.width > _WIDEST:
        console = Console(highlight=False, width=_WIDEST)
    title = harmless(str(thread.get("subject") or "(no subject)"))
    title.stylize("bold")
    console.print(title, soft_wrap=True)
    people = ", ".join(map(str, thread.get("participants") or ()))
    number = twins.count(thread)
    days = [str(thread.get(each))[:10] for each in ("first_date", "last_date")]
    when = " to ".join(dict.fromkeys(days))
    about = harmless(f"{many(number, 'message')}, {when}" + f": {people}" * bool(people))
    about.stylize("bright_black")
    console.print(about)
    console.print()
    # It comes from mail: what would speak to the terminal itself is made visible.
    lines = str(summary.get("content_markdown") or "").splitlines()
    safe = "\n".join(_visible(line) for line in lines)
    if console.is_terminal:
        console.print(Markdown(safe, hyperlinks=False))
    else:
        console.print(safe, soft_wrap=True, markup=False)
    page = place.settings.reports / f"{thread['_id']}.html"
    if page.exists():
        console.print(Text(f"\nwith the messages: {page}", "bright_black"), soft_wrap=True)


def _visible(line: str) -> str:
    return "".join(one if one.isprintable() or one == "\t" else shown(one) for one in line)
