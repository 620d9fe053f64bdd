"""Turn settings as text into values, or refuse them with the name, the value and the cure."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headway.core.errors import ConfigurationError
from headway.core.suggestion import nearest

_Parse = Callable[[str], Any]
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Setting:
    """One name that operators may set, the field it fills and how its text is read."""

    name: str
    field: str
    parse: _Parse


def read(
    known: Sequence[Setting], settings: Mapping[str, str], *, prefixes: Sequence[str]
) -> dict[str, Any]:
    """Collect the fields that are set; of several names for one field, the earlier one wins."""
    _refuse_misspelt(known, settings, prefixes)
    fields: dict[str, Any] = {}
    for prefix in prefixes:
        for setting in known:
            text = settings.get(prefix + setting.name, "").strip()
            if text and setting.field not in fields:
                try:
                    fields[setting.field] = setting.parse(text)
                except ValueError as error:
                    raise ConfigurationError(
                        f"{prefix}{setting.name}={_short(text)!r} is not accepted: {error}"
                    ) from None
    return fields


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def whole_number(low: int, high: int) -> _Parse:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ValueError(f"use a whole number from {low} to {high}")
        return value

    return parse


def number(low: float, high: float, unit: str | None = None) -> _Parse:
    """Read a number; with a unit that `timedelta` knows, read a duration."""

    def parse(text: str) -> float | timedelta:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:  # false for nan too
            of = f" of {unit}" if unit else ""
            raise ValueError(f"use a number{of} from {low:g} to {high:g}")
        return timedelta(**{unit: value}) if unit else value

    return parse


def one_of(words: Mapping[str, Any]) -> _Parse:
    """Read one of some words, in capitals or not, as what it stands for."""

    def parse(text: str) -> Any:
        if text.lower() not in words:
            raise ValueError(f"use {' or '.join(words)}")
        return words[text.lower()]

    return parse


def _refuse_misspelt(
    known: Sequence[Setting], settings: Mapping[str, str], prefixes: Sequence[str]
) -> None:
    for given in settings:
        meant = meant_by(given, known, prefixes)
        if meant is not None:
            # Its value is not shown: nobody knows whether it is a secret.
            raise ConfigurationError(f"{given} is not a setting: did you mean {meant}?")


def meant_by(given: str, known: Sequence[Setting], prefixes: Sequence[str]) -> str | None:
    """Give the setting that a misspelt name nearly is, if there is one.

    Other programs have settings that begin alike, so only a near miss counts: small letters, a
    letter or two, or another unit.
    """
    name = given.upper()
    if not name.startswith(tuple(prefixes)):
        return None
    names = [prefix + setting.name for prefix in prefixes for setting in known]
    if given in names:
        return None
    by_stem = {_UNIT.sub("", each): each for each in reversed(names)}
    return nearest(name, names, cutoff=0.93) or by_stem.get(_UNIT.sub("", name))


_UNIT = re.compile(r"_(MS|MILLIS|MILLISECONDS|S|SECS?|SECONDS?|MINS?|MINUTES?|HOURS?|DAYS?)$")
