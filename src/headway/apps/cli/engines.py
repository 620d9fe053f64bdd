"""The engine that a command works on."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from headway.apps.cli.refusals import UnavailableError
from headway.assembly.engine import open_engine
from headway.assembly.settings import EngineSettings, engine_settings, environment
from headway.core.engine_url import SqliteUrl
from headway.core.errors import ConfigurationError
from headway.core.secrets import hidden, shown_url
from headway.ports.engine import Engine

T = TypeVar("T")


def is_there(bus: str | None) -> bool:
    """Say whether the file of the engine exists: only a service that is started makes one.

    Whether a broker is there, it says itself.
    """
    found = engine_settings(bus).bus
    return not isinstance(found, SqliteUrl) or Path(found.path).exists()


def is_store_there(bus: str | None) -> bool:
    """Say whether the store beside the bus may be opened: only a service makes its file."""
    store = engine_settings(bus).store
    return store is not None and (not isinstance(store, SqliteUrl) or Path(store.path).exists())


def refuse_missing(bus: str | None, *, store: bool = True) -> EngineSettings:
    """Refuse files that are not there, before anything makes them; give what is meant."""
    meant = engine_settings(bus)
    for name, url, file in (
        (meant.name, meant.url, meant.bus),
        (meant.store_name, meant.store_url, meant.store if store else None),
    ):
        if isinstance(file, SqliteUrl) and not Path(file.path).exists():
            if name == "HEADWAY_BUS" and not environment().get(name):
                raise ConfigurationError(
                    f"There is no {Path(file.path).absolute()}, the file that is used if neither "
                    "--bus nor HEADWAY_BUS names another. Is this the right folder? A service that "
                    "is started makes the file: headway run MODULE:SERVICE."
                )
            raise ConfigurationError(
                f"Invalid {name} {shown_url(url)!r}: there is no such file "
                f"{Path(file.path).absolute()}. A service that is started makes it: "
                "headway run MODULE:SERVICE."
            )
    return meant


def on_engine(
    bus: str | None,
    body: Callable[[Engine], Awaitable[T]],
    *,
    store: bool = True,
    makes_file: bool = False,
) -> T:
    """Open the engine, do something with it, and close it again.

    `store=False`: what is done needs no store beside the bus, and may be done before there is one.
    `makes_file`: a file that is not there is made.
    """
    meant = engine_settings(bus) if makes_file else refuse_missing(bus, store=store)

    async def opened() -> T:
        engine = open_engine(bus, store=store)
        try:
            return await body(engine)
        finally:
            await engine.close()

    try:
        return asyncio.run(opened())
    except ConnectionError as error:
        raise unreachable(meant, error) from error


def unreachable(meant: EngineSettings, error: ConnectionError) -> UnavailableError:
    """Name the setting of what does not answer: the bus, or the store."""
    said, store = str(error), shown_url(meant.store_url)
    # Each names in its errors whom it could not reach.
    is_store = meant.store is not None and bool(store) and store in said
    name, url = (meant.store_name, store) if is_store else (meant.name, shown_url(meant.url))
    why = hidden(said.removeprefix(f"{url}: "))
    return UnavailableError(f"{name}={url!r} cannot be used: {why}")
