"""What service authors may measure: names and tags are checked before they become metrics."""

import re
from collections.abc import Mapping
from math import isnan
from typing import Literal

from headway.core.errors import ConfigurationError
from headway.core.metrics import CATALOGUE

Kind = Literal["counter", "gauge", "histogram"]

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TAG = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_VERBS: Mapping[Kind, str] = {
    "counter": "increment",
    "gauge": "gauge",
    "histogram": "observe",
}
_ADDED = ("_bucket", "_count", "_created", "_info", "_sum")
"""Endings that the exposition itself adds to names."""
_OURS = frozenset(metric.name for metric in CATALOGUE)


class Measures:
    """Remembers what each name is: its kind and its tags stay what they were at first."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Kind, frozenset[str]]] = {}

    def check(self, kind: Kind, name: str, value: float, tags: Mapping[str, str] | None) -> None:
        """Raise ConfigurationError for what cannot be measured, each time and not only at first."""
        known = self._known.get(name)
        if known is None:
            _refuse_bad_name(kind, name)
            _refuse_bad_tags(kind, name, tags or {})
            # Of two threads that come at once, the second is held to what the first made of it.
            known = self._known.setdefault(name, (kind, frozenset(tags or ())))
        if known[0] != kind:
            raise ConfigurationError(
                f"{name} is used with {_VERBS[kind]}() and was a {known[0]} before: "
                "give one of them another name"
            )
        if known[1] != (tags or {}).keys():
            raise ConfigurationError(
                f"{name} has the tags {_list(tags or ())} and had {_list(known[1])} before: "
                "give a name the same tags everywhere"
            )
        if not _is_number(value):
            raise ConfigurationError(f"{name}={value!r} is not accepted: use a number")
        if kind == "counter" and value < 0:
            raise ConfigurationError(
                f"{name}={value!r} is not accepted: a counter only grows, use gauge()"
            )


def _refuse_bad_name(kind: Kind, name: str) -> None:
    if not _is_name(name, _NAME):
        raise ConfigurationError(
            f"{name!r} is not accepted as the name of a metric: use letters, digits and "
            "underscores, beginning with no digit"
        )
    if name in _OURS:
        raise ConfigurationError(
            f"{name} is measured by Headway itself: give yours another name, or leave it out"
        )
    if kind == "counter" and not name.endswith("_total"):
        raise ConfigurationError(f"{name} is not accepted: a counter ends in _total: {name}_total")
    if kind != "counter" and name.endswith("_total"):
        raise ConfigurationError(
            f"{name} is not accepted: only a counter ends in _total; use increment(), or "
            f"{name.removesuffix('_total')}"
        )
    if name.endswith(_ADDED):
        raise ConfigurationError(
            f"{name} is not accepted: {', '.join(_ADDED)} are added to names by Prometheus"
        )


def _refuse_bad_tags(kind: Kind, name: str, tags: Mapping[str, str]) -> None:
    taken = {"le"} if kind == "histogram" else set()
    for tag in tags:
        if not _is_name(tag, _TAG) or tag in taken:
            raise ConfigurationError(
                f"{name} has the tag {tag!r}, which is not accepted: use letters, digits and "
                "underscores, beginning with neither a digit nor two underscores, and not 'le'"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isnan(value)


def _is_name(name: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(name, str) and pattern.fullmatch(name) is not None


def _list(tags: Mapping[str, str] | frozenset[str] | tuple[()]) -> str:
    return ", ".join(sorted(tags)) or "none"
