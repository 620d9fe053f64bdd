"""The engine that a command works on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from headway.assembly.engine import open_engine
from headway.ports.engine import Engine

T = TypeVar("T")

BusOption = Annotated[
    str | None,
    typer.Option(
        "--bus", metavar="URL", help="The engine. [default: HEADWAY_BUS, or sqlite:///headway.db]"
    ),
]


def on_engine(bus: str | None, body: Callable[[Engine], Awaitable[T]]) -> T:
    """Open the engine, do something with it, and close it again."""

    async def opened() -> T:
        engine = open_engine(bus, name="--bus" if bus else "HEADWAY_BUS")
        try:
            return await body(engine)
        finally:
            await engine.bus.close()

    return asyncio.run(opened())
