"""What `headway uptime` reads, from a store that is there: a look makes no file."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import typer

from headway.apps.cli.codes import NOT_AS_PROMISED
from headway.apps.cli.refusals import UnavailableError
from headway.core.engine_url import SqliteUrl, read_sequences_url
from headway.core.errors import ConfigurationError
from headway.core.secrets import hidden, shown_url
from headway.core.showing import shown
from headway.runtime.sequence_reach import is_unavailable
from headway.systems.uptime.opening import open_store
from headway.systems.uptime.reading import status_of
from headway.systems.uptime.settings import UptimeSettings
from headway.systems.uptime.sqlite_store import SqliteStore
from headway.systems.uptime.store import Check, Rejected

T = TypeVar("T")


def read_status(settings: UptimeSettings) -> dict[str, Any]:
    """Give the consumer in numbers."""
    _refuse_what_is_not_there(settings)
    place = read_sequences_url("--sequences", settings.sequences_url)
    if isinstance(place, SqliteUrl):
        _refuse_no_file("--sequences", settings.sequences_url, place.path)
    try:
        return asyncio.run(status_of(settings))
    except Exception as error:
        if not is_unavailable(error):
            raise
        url = shown_url(settings.sequences_url)
        raise UnavailableError(
            f"--sequences={url!r} cannot be used: {hidden(str(error))}"
        ) from error


def read_checks(settings: UptimeSettings, subscription: str) -> Sequence[Check]:
    """Give the record of a subscription; ends with exit code 1 if there is none of this name."""

    async def read(store: SqliteStore) -> Sequence[Check] | None:
        found = await store.checks(subscription)
        # The record of one that was deleted is still there.
        return found if found or await store.load([subscription]) else None

    found = _on_store(settings, read)
    if found is None:
        typer.echo(
            f"headway: there is no subscription {shown(subscription)!r} in {settings.store}; "
            "headway uptime subscribe FILE writes one",
            err=True,
        )
        raise typer.Exit(NOT_AS_PROMISED)
    return found


def read_rejected(settings: UptimeSettings, limit: int) -> Sequence[Rejected]:
    """Give what came and was no result."""
    return _on_store(settings, lambda store: store.rejected(limit))


def lines_of(source: Path) -> Iterator[bytes]:
    """Give the lines of a file, blank ones too; refused at once if it is not there."""
    if str(source) == "-":
        file = typer.get_binary_stream("stdin")
    else:
        try:
            file = source.open("rb")
        except OSError as error:
            raise ConfigurationError(
                f"{shown(str(source))} cannot be read ({error.strerror}; this is {Path.cwd()}): "
                "name a file of JSON lines, or - for standard input"
            ) from None
    return _lines(file)


def _lines(file: Any) -> Iterator[bytes]:
    with file:
        yield from file


def _on_store(settings: UptimeSettings, body: Callable[[SqliteStore], Awaitable[T]]) -> T:
    _refuse_what_is_not_there(settings)

    async def opened() -> T:
        store = open_store(settings)
        try:
            await store.prepare()
            return await body(store)
        finally:
            await store.close()

    return asyncio.run(opened())


def _refuse_what_is_not_there(settings: UptimeSettings) -> None:
    _refuse_no_file("--store", settings.store, settings.store_place().path)


def _refuse_no_file(option: str, url: str, path: str | Path) -> None:
    if not Path(path).exists():
        raise ConfigurationError(
            f"{url!r} is not accepted: there is no such file (this is {Path.cwd()}); name another "
            f"by {option} URL, or make it by headway uptime subscribe FILE"
        )
