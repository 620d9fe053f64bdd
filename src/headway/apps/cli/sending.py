"""What `headway publish` sends: read, checked, and stored when it says so."""

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import msgspec
import typer

from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.apps.cli.engines import is_there, on_engine
from headway.apps.cli.refusals import UnavailableError
from headway.apps.cli.screen import bar, many, say_on_ctrl_c
from headway.assembly.settings import engine_settings, shown_engine
from headway.core.errors import ConfigurationError, NotPublishedError, UnsendableError
from headway.core.event import new_event_id
from headway.core.routing import checked_name
from headway.core.showing import shown
from headway.ports.engine import Engine
from headway.runtime.publisher import Publisher
from headway.runtime.unrouted import nearest_type

_AT_ONCE = 500
_MORE_FOLLOWS = "Extra data"


def publish_events(
    event_type: str, data: str, *, event_id: str | None, raw: bool, bus: str | None
) -> None:
    """Publish one event, or many, and say how many queues took them, or that they are kept."""
    checked_name("TYPE", event_type)
    given = typer.get_binary_stream("stdin").read() if data == "-" else data.encode()
    bodies = [given] if raw else read_many(given, "standard input" if data == "-" else "JSON")
    if event_id is not None and len(bodies) != 1:
        raise ConfigurationError(
            f"--event-id {shown(event_id)!r} is not accepted for {many(len(bodies), 'event')}: all "
            "of them would be taken for one; leave it out, and each gets its own"
        )
    is_new = not is_there(bus)
    done, taken = 0, 0
    meant = ""
    named = event_id or new_event_id(CLOCK.now(), CHANCE.token())

    async def send(engine: Engine) -> None:
        nonlocal done, taken, meant
        publisher = Publisher(engine.bus, CLOCK, CHANCE)
        if raw:
            taken = await publisher.publish_bytes(given, event_type, operation=named)
        elif len(bodies) == 1:
            taken = await publisher.publish(event_type, msgspec.Raw(bodies[0]), event_id=named)
        else:
            async for number, took in _in_groups(publisher, event_type, bodies):
                done, taken = done + number, taken + took
                move(done, len(bodies))
        if not taken:
            meant = nearest_type(event_type, await engine.unrouted.taken_types())

    with (
        _counted(lambda: _stored(done, len(bodies))),
        say_on_ctrl_c(lambda: _how_far(named, done, len(bodies))),
        bar("publishing") as move,
    ):
        on_engine(bus, send, store=False, makes_file=True)
    which = f"event {shown(named)}" if len(bodies) == 1 else many(len(bodies), "event")
    engine = shown_engine(engine_settings(bus))
    if taken:
        typer.echo(f"Published {which} to {many(taken // len(bodies), 'queue')} on {engine}.")
        return
    kept = "It is kept" if len(bodies) == 1 else "They are kept"
    typer.echo(
        f"Published {which} to no queue: no service takes {event_type} yet. {kept} as unrouted "
        f"on {engine}{' (a new file)' * is_new} until one does."
        + f" Did you mean {shown(meant)}?"
        * bool(meant)
    )


@contextmanager
def _counted(stored: Callable[[], str]) -> Iterator[None]:
    """Add to any error of an engine how many events it stored before."""
    try:
        yield
    except UnavailableError as error:
        raise UnavailableError(f"{error}{stored()}") from error
    except UnsendableError as error:
        raise ConfigurationError(f"{error}{stored()}") from error
    except sqlite3.Error as error:
        if said := stored():
            error.add_note(said.removeprefix("; "))
        raise


async def _in_groups(
    publisher: Publisher, event_type: str, bodies: Sequence[bytes]
) -> AsyncIterator[tuple[int, int]]:
    """Publish in groups; of each, say how many are stored, and how many queues took them."""
    for start in range(0, len(bodies), _AT_ONCE):
        group = [(event_type, msgspec.Raw(body)) for body in bodies[start : start + _AT_ONCE]]
        try:
            took = await publisher.publish_all(group)
        except (NotPublishedError, UnsendableError) as error:
            yield len(error.stored), 0
            raise
        yield len(group), took


def _how_far(named: str, done: int, of: int) -> str:
    if of == 1:
        return f"event {shown(named)} may have been published, or not"
    return f"{done} of {many(of, 'event')} were published, and perhaps the next few"


def _stored(done: int, of: int) -> str:
    return f"; {done} of {many(of, 'event')} were published" if done else ""


def read_many(given: bytes, where: str) -> Sequence[bytes]:
    """Read one JSON object, or many on a line each; what is none is refused with its place."""
    try:
        text = given.decode()
    except UnicodeDecodeError as error:
        raise _refused(where, f"{error}; --raw takes any bytes") from None
    lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
    try:
        _check(text, where)
    except json.JSONDecodeError as error:
        if error.msg != _MORE_FOLLOWS or len(lines) == 1:
            raise _refused(where, _place(error, error.lineno)) from None
    else:
        return [given.strip()]
    for at, line in lines:
        try:
            _check(line, f"line {at} of {where}")
        except json.JSONDecodeError as error:
            why = f"{_place(error, at)}; many events have to stand on a line each"
            raise _refused(where, why) from None
    return [line.strip().encode() for _, line in lines]


def _check(text: str, where: str) -> None:
    """Refuse what is no JSON object, or none that every reader takes."""
    try:
        found = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_twins)
        msgspec.json.decode(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise _refused(where, "it is nested too deeply") from None
    except ValueError as error:
        raise _refused(where, str(error)) from None
    if not isinstance(found, dict):
        raise _refused(where, "data is a JSON object, in braces; --raw takes any bytes")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; write null, or a text")


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {shown(twice)!r} is there twice, and readers keep one of them")
    return found


def _place(error: json.JSONDecodeError, line: int) -> str:
    return f"line {line}, column {error.colno}: {error.msg}"


def _refused(where: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{where} is not accepted: {why}")
