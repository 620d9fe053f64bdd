"""The engine that a command works on."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from headway.assembly.engine import open_engine
from headway.assembly.settings import bus_url
from headway.core.engine_url import SqliteUrl, read_engine_url
from headway.core.errors import ConfigurationError
from headway.core.secrets import hidden
from headway.ports.engine import Engine

T = TypeVar("T")


def is_there(bus: str | None) -> bool:
    """Say whether the file of the engine exists: only a service that is started makes one."""
    return Path(_read(bus).path).exists()


def on_engine(bus: str | None, body: Callable[[Engine], Awaitable[T]]) -> T:
    """Open the engine, do something with it, and close it again."""
    if not is_there(bus):
        url = hidden(bus or bus_url())
        raise ConfigurationError(
            f"{_name(bus)}={url!r} is not accepted: there is no such file (this is "
            f"{Path.cwd()}); a service that is started makes it: headway run MODULE:SERVICE"
        )

    async def opened() -> T:
        engine = open_engine(bus, name=_name(bus))
        try:
            return await body(engine)
        finally:
            await engine.bus.close()

    return asyncio.run(opened())


def _read(bus: str | None) -> SqliteUrl:
    return read_engine_url(_name(bus), bus or bus_url())


def _name(bus: str | None) -> str:
    return "--bus" if bus else "HEADWAY_BUS"
