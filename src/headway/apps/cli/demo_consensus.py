"""`headway demo consensus`: the pipeline under five faults, and what became of every item."""

import asyncio
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.text import Text

from headway.apps.cli.calling import own_name
from headway.apps.cli.codes import CANNOT_GO_ON, NOT_AS_PROMISED
from headway.apps.cli.consensus_place import FILE, make_folder, refuse_without_model
from headway.apps.cli.demo_consensus_screen import shown
from headway.apps.cli.screen import as_json, harmless, say_on_ctrl_c, show_indented, show_table
from headway.assembly.engine import open_engine
from headway.assembly.settings import environment
from headway.runtime.overview import Verdict, verify
from headway.systems.consensus.demo.run import Books, Demo, Played, play
from headway.systems.consensus.settings import ConsensusSettings

PIPELINE = "headway.systems.consensus.pipeline"
_SWEEP = (sys.executable, "-P", "-m", "headway.apps.cli", "sweep", PIPELINE, "--once", "--json")
_WIDEST = 78
_MONTHS = {
    1: "A month of a mailing list goes",
    2: "Two months of a mailing list go",
    3: "Three months of a mailing list go",
}
_FAULTS = ("fault", "on purpose", "what happened")
_RECOVERED = "recovered in"
_FACTS = 9


def show_consensus(months: int, *, keep: Path | None, machine: bool) -> None:
    """Play it, and show what came of it. Ends with exit code 1 unless all was as promised."""
    refuse_without_model(ConsensusSettings())
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        typer.echo(f"headway: --keep {keep} is not accepted: name a new or empty folder", err=True)
        raise typer.Exit(CANNOT_GO_ON)
    if keep is not None:
        make_folder(keep, "--keep")
    if not machine:
        typer.echo(_introduction(months) + "\n")
    left = "nothing is left of it" if keep is None else f"what was done is in {keep}"
    with say_on_ctrl_c(lambda: left), _folder(keep) as data:
        demo = Demo(
            data=data,
            months=months,
            environment=environment(),
            sweep=_SWEEP,
            verify=_books,
        )
        with shown(quiet=machine) as story:
            played = asyncio.run(play(demo, story))
    shortcomings = played.shortcomings()
    if machine:
        typer.echo(as_json(_figures(played, shortcomings), indent=2))
    else:
        _show(played, shortcomings, keep)
    raise typer.Exit(NOT_AS_PROMISED if shortcomings else 0)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="headway-demo-") as folder:
        yield Path(folder)


async def _books(bus: str) -> Books:
    engine = open_engine(bus)
    try:
        report = await verify(engine.places)
    finally:
        await engine.close()
    return Books(
        places=report.places,
        accepted=report.count.accepted,
        difference=report.difference,
        missing=[each.operation for each in report.examples if each.fault == "missing"],
        ok=report.verdict is Verdict.OK,
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, min(_WIDEST, shutil.get_terminal_size().columns - 1))


def _introduction(months: int) -> str:
    return _wrapped(
        f"{_MONTHS[months]} through seven services (ingestion, parsing, chunking, embedding, "
        "orchestrator, summarization, reporting), which hand their work on by events. Two worker "
        "processes run them on one SQLite file. Meanwhile five things go wrong on purpose (✗); "
        "see what Headway does about each (✓)."
    )


def _figures(played: Played, shortcomings: list[str]) -> dict[str, Any]:
    return {
        "seconds": round(played.seconds, 3),
        "messages": played.messages,
        "threads": played.threads,
        "faults": [asdict(each) for each in played.faults],
        "collections": {each.collection: each.states for each in played.status.collections},
        "pages": played.pages,
        "vectors": played.vectors,
        "failed": {each.queue: each.letters for each in played.status.failed},
        "books": asdict(played.books),
        "letters": [
            {"letter_id": each.letter_id, "queue": "parsing.failed", "error": each.last_error}
            for each in played.letters
        ],
        "shortcomings": shortcomings,
    }


def _show(played: Played, shortcomings: list[str], keep: Path | None) -> None:
    console = Console(highlight=False)
    console.print()
    rows = [
        (
            each.name,
            each.injected or "(it was not done)",
            each.happened,
            "-" if each.seconds is None else f"{each.seconds:.1f} s",
        )
        for each in played.faults
    ]
    show_table([*_FAULTS, _RECOVERED], rows, numbers=[_RECOVERED], whole=["fault"])
    console.print(f"\n{_RECOVERED}: from the fault until all that it had hit went on\n")
    numbers = ["made", "finished", "failed"]
    show_table(["", *numbers], _items(played), numbers=numbers)
    console.print()
    console.print(_balance(played.books), soft_wrap=True)
    console.print()
    _show_letter(console, played, keep)
    if shortcomings:
        console.print(Text("\nNot as promised:", "bold red"))
        for each in shortcomings:
            console.print(Text("  ") + harmless(each), soft_wrap=True)
    else:
        text = (
            f"In {played.seconds:.0f} s every message but one went through seven services, each "
            "once, whatever happened to its events and workers. The one that cannot be read waits "
            "for a person."
        )
        console.print(Text(f"\n{_wrapped(text)}", "green"))
    typer.echo(f"\n{_next(keep)}")


def _items(played: Played) -> list[tuple[str, str, str, str]]:
    rows = []
    for each in played.status.collections:
        made, done = each.documents, each.states.get("processed", 0)
        note = each.collection
        if each.collection == "slices":
            note = "parts of archives (the poison is one)"
        rows.append((note, str(made), str(done), str(made - done or "")))
    rows.append(("vectors", str(played.vectors), str(played.vectors), ""))
    rows.append(("pages", str(played.pages), str(played.pages), ""))
    return rows


def _balance(books: Books) -> Text:
    there = ", ".join(f"{count} {name}" for name, count in books.places.items() if count)
    sign = Text("verify  ", "bold green") if books.ok else Text("verify  ", "bold red")
    said = f"{books.accepted} operations were accepted: {there}; the difference is "
    return sign + Text(f"{said}{books.difference}")


def _show_letter(console: Console, played: Played, keep: Path | None) -> None:
    for letter in played.letters:
        console.print(Text("The poison is a letter in parsing.failed:", "bold"))
        for name, value in {
            "letter": letter.letter_id,
            "reason": str(letter.abandoned_reason),
            "error": letter.last_error,
            "slice": ", ".join(letter.document_ids),
        }.items():
            show_indented(console, harmless(value), _FACTS, first=Text(f"  {name}"))
    folder = "DIR" if keep is None else shlex.quote(str(keep))
    name, bus = own_name(), f"--bus sqlite:///{'DIR' if keep is None else quote(str(keep))}/{FILE}"
    console.print("To look at it, to send it again when its archive is mended, and to run it then:")
    console.print(f"  {name} failed inspect parsing {bus}", soft_wrap=True)
    console.print(f"  {name} failed requeue parsing {bus}", soft_wrap=True)
    console.print(f"  {name} consensus ingest --data {folder}", soft_wrap=True)


def _next(keep: Path | None) -> str:
    name = own_name()
    if keep is None:
        return f"""Next:
  {name} demo consensus --keep DIR: keep it, to try these
  {name} consensus ingest PATH: the same with mail of your own
  docs/how-to/run-consensus.md: how"""
    folder = shlex.quote(str(keep))
    return f"""Next:
  {name} consensus search "why was the release late" --data {folder}
  {name} consensus summary --list --data {folder}
  {keep}/reports/index.html: the pages
  docs/how-to/run-consensus.md: the same with mail of your own"""
