"""The words in which dashboards are written: boards, rows, and panels with expressions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Panel:
    """What one panel shows, in which unit, and lines by expression and name."""

    title: str
    says: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    kind: Literal["graph", "gauge", "number", "heatmap"] = "graph"
    """A gauge and a number show what is now; NaN is shown as the word unknown."""
    steps: tuple[tuple[float, str], ...] = ()
    """From which value on it is of which colour; green below."""
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Values that are shown as a word of some colour."""


@dataclass(frozen=True)
class Choice:
    """What can be chosen above a board: names, and the query that gives them."""

    name: str
    query: str


@dataclass(frozen=True)
class Board:
    """One dashboard."""

    uid: str
    """Also the name of its file."""
    title: str
    says: str
    tags: tuple[str, ...]
    choices: tuple[Choice, ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
