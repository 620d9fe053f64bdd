"""The sequences that a command works on."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headway.apps.cli.calling import pasteable
from headway.apps.cli.operator import result_order
from headway.apps.cli.output import OutputError
from headway.apps.cli.refusals import UnavailableError
from headway.assembly.loading import load_sequence_settings
from headway.assembly.sequencing import open_sequences
from headway.assembly.settings import environment, sequences_settings
from headway.core.engine_url import SequencesUrl, SqliteUrl, read_sequences_url
from headway.core.errors import ConfigurationError
from headway.core.secrets import hidden, shown_url
from headway.core.sequence_settings import DEFAULT_NAME, SequenceSettings
from headway.core.showing import shown
from headway.runtime.order import ResultOrder, UnknownKeyError
from headway.runtime.sequence_reach import is_unavailable
from headway.systems.uptime.settings import UptimeSettings

T = TypeVar("T")
Body = Callable[[ResultOrder], Awaitable[T]]

UPTIME = "uptime"
_ANSWERS_WITHIN = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """What was typed."""

    url: str | None
    name: str
    """Of the resequencer."""
    settings: str | None = None
    """MODULE:NAME of its settings, if they are its own."""

    def command(self, verb: str, *keys: str, name: str | None = None) -> str:
        """Write a command about the same sequences, or those of another name, to be pasted."""
        words, name = ["order", verb], name or self.name
        if not any(key.startswith("-") for key in keys):
            words += keys
        words += ["--name", name] if name != DEFAULT_NAME else []
        if self.url is not None:
            words += ["--sequences", self.url if shown_url(self.url) == self.url else "URL"]
        words += ["--settings", self.settings] if self.settings is not None else []
        if any(key.startswith("-") for key in keys):
            words += ["--", *keys]
        return pasteable(*words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meant:
    setting: str
    url: str
    place: SequencesUrl
    order: SequenceSettings | None

    def refused(self, how: str, why: str) -> ConfigurationError:
        return ConfigurationError(f"{self.setting}={shown_url(self.url)!r} {how}: {why}")


def on_sequences(which: Which, body: Body[T]) -> T:
    """Open sequences, do something with them, and close them again."""
    meant = _uptime(which) if which.name == UPTIME else _named(which)
    if not isinstance(meant.place, SqliteUrl):
        return _on_redis(meant, which, body)
    if not Path(meant.place.path).exists():
        raise meant.refused(
            "is not accepted",
            f"there is no such file (this is {Path.cwd()}); name another by --sequences URL, or "
            "another resequencer by --name",
        )
    return asyncio.run(_opened(meant, which, body))


def _uptime(which: Which) -> _Meant:
    """Give what the uptime system works on: its settings say where, and how long it waits."""
    settings = UptimeSettings.from_mapping(environment(), sequences=which.url)
    setting = "UPTIME_SEQUENCES" if settings.sequences else "UPTIME_STORE"
    setting = "--sequences" if which.url else setting
    url = settings.sequences_url
    order = _own_order(which) or settings.order()
    return _Meant(setting=setting, url=url, place=read_sequences_url(setting, url), order=order)


def _named(which: Which) -> _Meant:
    found = sequences_settings(which.url)
    return _Meant(setting=found.name, url=found.url, place=found.place, order=_own_order(which))


def _own_order(which: Which) -> SequenceSettings | None:
    return None if which.settings is None else load_sequence_settings(which.settings)


def _on_redis(meant: _Meant, which: Which, body: Body[T]) -> T:
    try:
        from redis.exceptions import RedisClusterException, RedisError  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        return asyncio.run(_opened(meant, which, body))  # which says what is missing
    try:
        return asyncio.run(_opened(meant, which, body, probe=True))
    except OutputError:
        raise
    except (RedisError, RedisClusterException, OSError) as error:
        said = hidden(str(error)) or f"no answer within {_ANSWERS_WITHIN:g} s"
        refused = meant.refused("cannot be used", said)
        if is_unavailable(error):
            raise UnavailableError(str(refused)) from error
        raise refused from error


async def _opened(meant: _Meant, which: Which, body: Body[T], *, probe: bool = False) -> T:
    sequences = open_sequences(meant.url, family=which.name, settings=meant.order)
    try:
        if probe:  # a host that says nothing at all would keep us for minutes
            async with asyncio.timeout(_ANSWERS_WITHIN):
                await sequences.waiting(1)
        where = f"under the name '{shown(which.name)}' in {shown_url(meant.url)}"
        is_known = meant.order is not None
        return await body(result_order(sequences, where=where, are_own_settings=is_known))
    except UnknownKeyError as error:
        raise ConfigurationError(
            f"{error}. To list the keys that hold results:\n  {which.command('status')}"
        ) from None
    finally:
        await sequences.close()
