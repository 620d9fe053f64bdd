"""How `headway consensus ingest` works: submit, run workers, wait until everything is settled."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import typer

from headway import connect
from headway.adapters.system.clock import CLOCK
from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.consensus_known import without_known
from headway.apps.cli.consensus_looking import command, show_found, show_letters_of
from headway.apps.cli.consensus_place import (
    Place,
    find_place,
    make_folder,
    refuse_empty,
    refuse_without_model,
)
from headway.apps.cli.consensus_progress import Counts, Screen, screen
from headway.apps.cli.consensus_refused import QUEUE, without_refused
from headway.apps.cli.screen import many, say_on_ctrl_c
from headway.assembly.connection import Connection
from headway.assembly.settings import environment
from headway.core.errors import ConfigurationError
from headway.core.showing import shown
from headway.systems.consensus.events import ArchiveSubmitted, plain
from headway.systems.consensus.mail.errors import MailError
from headway.systems.consensus.mail.finding import find_archives
from headway.systems.consensus.mail.naming import in_text, readable
from headway.systems.consensus.status import read_status
from headway.systems.consensus.workers import Workers

LOG = "workers.log"
_PIPELINE = "headway.systems.consensus.pipeline"
_LOOK_EVERY = timedelta(milliseconds=300)
_LOOKS = 3
"""In a row that must find nothing on its way: a broker counts a moment late."""
_SHARE = 10
"""Looking takes no more than this part of the time."""
_AT_ONCE = 500
_ALL = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingestion:
    """What was typed."""

    paths: Sequence[str]
    data: Path | None
    bus: str | None
    workers: int
    no_run: bool


def ingest_archives(asked: Ingestion) -> None:
    """Submit archives and run the pipeline; end with the code that says how it came out."""
    how_far = "nothing was submitted yet"
    with say_on_ctrl_c(lambda: how_far):
        place = find_place(asked.data, asked.bus)
        refuse_without_model(place.settings)
        archives = _found(asked.paths)
        if not archives:
            refuse_empty(place)
        if not (asked.no_run and place.is_named):  # else nothing is kept there from here
            named = "CONSENSUS_DATA" if asked.data is None else "--data"
            make_folder(place.settings.data, named)
        new = asyncio.run(_new(place, archives, is_run=not asked.no_run))
        how_far = "the same command goes on from there"
        asyncio.run(_submit(place, new))
        if asked.no_run:
            typer.echo("Services take them up where they run: " + command(place, "run", _PIPELINE))
            return
        asyncio.run(_run(place, asked.workers))
        status = asyncio.run(read_status(place.bus))
    show_found(status)
    letters = show_letters_of(status, place)
    pending = sum(each.states.get("pending", 0) for each in status.collections)
    if pending:
        typer.echo(
            f"{many(pending, 'document is', 'documents are')} pending, for what has failed or "
            "because an event was lost; to send lost ones again, and then go on:"
        )
        typer.echo(f"  {command(place, 'sweep', _PIPELINE, '--once')}")
    elif letters:
        typer.echo("\nEverything else is finished.")
    if letters or pending:
        raise typer.Exit(NOT_AS_PROMISED)
    pages = place.settings.reports / "index.html"
    if pages.exists():
        typer.echo(f"The pages are in {pages}")
    elif not any(each.states for each in status.collections):
        typer.echo("Nothing was ingested: the event of the archive was lost. Name its PATH again")
        raise typer.Exit(NOT_AS_PROMISED)


def _found(paths: Sequence[str]) -> list[str]:
    """Find the archives that paths stand for; nothing is submitted if one of them is wrong."""
    archives: list[str] = []
    passed_over = 0
    for path in paths:
        try:
            found = find_archives(path)
        except FileNotFoundError:
            raise ConfigurationError(
                f"PATH={shown(path)!r} is not accepted: nothing is there (this is {Path.cwd()})"
            ) from None
        except (MailError, OSError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigurationError(f"PATH={shown(path)!r} is not accepted: {why}") from None
        archives += found.archives
        passed_over += len(found.passed_over)
    if paths:
        left = f"; {many(passed_over, 'other file')} passed over" * bool(passed_over)
        typer.echo(f"{many(len(archives), 'archive')} found{left}", err=True)
    return archives


async def _new(place: Place, archives: Sequence[str], *, is_run: bool) -> Sequence[str]:
    """Give what has to be submitted, and say what has not."""
    from headway.systems.consensus.pipeline import SERVICES  # noqa: PLC0415 (it reads settings)

    async with connect(place.bus) as headway:
        await headway.declare(*SERVICES)
        new = await without_refused(headway, archives)
        if left := len(archives) - len(new):
            typer.echo(
                f"{many(left, 'file was', 'files were')} refused before, and not changed since: "
                f"the reason waits in {QUEUE}",
                err=True,
            )
        if is_run:  # else nobody knows whether what is kept can be seen from here
            unknown = await without_known(headway, new, place.settings.data)
            if known := len(new) - len(unknown):
                typer.echo(f"{many(known, 'archive is', 'archives are')} known already", err=True)
            new = unknown
    return new


async def _submit(place: Place, archives: Sequence[str]) -> None:
    events = [("ArchiveSubmitted", plain(_submitted(path))) for path in archives]
    async with connect(place.bus) as headway:
        for start in range(0, len(events), _AT_ONCE):
            await headway.publish_all(events[start : start + _AT_ONCE])


def _submitted(path: str) -> ArchiveSubmitted:
    name = readable(Path(path).name.split(".")[0] or path)
    return ArchiveSubmitted(path=in_text(str(Path(path).absolute())), source_name=name)


def worker_environment(place: Place) -> Mapping[str, str]:
    """Give the environment of a worker: what is in force here, by its names."""
    given = {name: value for name, value in environment().items() if name != "HEADWAY_SETTINGS"}
    return {**given, **place.settings.in_words(), "HEADWAY_BUS": place.bus}


async def _run(place: Place, workers: int) -> None:
    async with connect(place.bus) as headway:
        counts = Counts(await _waiting(headway))
        before = await _parsed_before(headway)
        if not counts.at_first:
            return
        with screen(counts) as shown_on:
            async with Workers(
                workers,
                environment=worker_environment(place),
                log=place.settings.data / LOG,
                on_told=shown_on.hear,
                on_death=shown_on.died,
            ) as running:
                await _until_settled(headway, shown_on, running, before)


async def _until_settled(
    headway: Connection, shown_on: Screen, running: Workers, before: int
) -> None:
    counts = shown_on.counts
    began, nothing = CLOCK.now(), 0
    while nothing < _LOOKS:
        running.check()
        looked = CLOCK.now()
        counts.waiting = await _waiting(headway)
        # What failed is over too: else the bars would never be full.
        failed = await _in_slices(headway, "failed")
        counts.messages = await _messages(headway) - failed - before
        if counts.threads is None and not _is_parsing(counts.waiting):
            pending = await headway.find("threads", {"status": "pending"}, limit=_ALL)
            counts.threads = counts.done["summarization"] + len(pending)
        nothing = 0 if counts.waiting else nothing + 1
        shown_on.draw((CLOCK.now() - began).total_seconds())
        # A large store takes its time to be counted: it has other things to do.
        await CLOCK.wait(max(_LOOK_EVERY, (CLOCK.now() - looked) * _SHARE))


def _is_parsing(waiting: Mapping[str, int]) -> bool:
    return any(name.startswith(("ingestion.", "parsing.")) for name in waiting)


async def _waiting(headway: Connection) -> dict[str, int]:
    depths = await headway.depths()
    waiting = {each.queue: each.waiting for each in depths.queues if each.waiting}
    return {**waiting, "in hand": 1} if depths.in_hand else waiting


async def _messages(headway: Connection) -> int:
    archives = await headway.find("archives", limit=_ALL)
    return sum(int(each.get("message_count") or 0) for each in archives)


async def _parsed_before(headway: Connection) -> int:
    """Count the messages of archives that an earlier run has parsed."""
    left = await _in_slices(headway, "pending") + await _in_slices(headway, "failed")
    return await _messages(headway) - left


async def _in_slices(headway: Connection, state: str) -> int:
    slices = await headway.find("slices", {"status": state}, limit=_ALL)
    return sum(len(each.get("messages") or ()) for each in slices)
