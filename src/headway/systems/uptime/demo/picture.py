"""Figures over time as an SVG picture: panels one above the other, with one axis of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from headway.systems.uptime.demo.measured import Line

_WIDE, _LEFT, _RIGHT = 920, 72, 24
_TOP, _HIGH, _BETWEEN, _BOTTOM = 96, 150, 66, 64
_INK, _GREY, _RULE, _SHADE = "#1f2933", "#616e7c", "#dde3ea", "#f3ecd8"
_TICKS = 4
_STEPS = (1, 2, 2.5, 5, 10)
_MINUTE = 60


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line, in its colour."""

    line: Line
    colour: str
    dashed: bool = False
    """So that two lines that lie upon each other are both seen."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure, of one way or of both."""

    title: str
    lines: Sequence[Drawn]
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Panels over the same time."""

    title: str
    subtitle: str
    panels: Sequence[Panel]
    shaded: Sequence[tuple[float, float]]
    """Times that stand out, from and to."""
    shaded_means: str
    until: float

    def svg(self) -> str:
        """Draw it."""
        high = _TOP + len(self.panels) * (_HIGH + _BETWEEN) - _BETWEEN + _BOTTOM
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {high}" '
                    f'width="{_WIDE}" height="{high}" role="img" '
                    f'font-family="system-ui, -apple-system, Segoe UI, sans-serif" font-size="13">'
                ),
                f"<title>{escape(self.title)}</title>",
                f'<rect width="{_WIDE}" height="{high}" fill="#ffffff"/>',
                _text(_LEFT, 34, self.title, size=19, weight=600),
                _text(_LEFT, 56, self.subtitle, colour=_GREY),
                *self._panels(),
                *self._legend(high - 14),
                "</svg>",
                "",
            ]
        )

    def _panels(self) -> Iterator[str]:
        for number, panel in enumerate(self.panels):
            top = _TOP + number * (_HIGH + _BETWEEN)
            yield from self._panel(panel, top, last=number == len(self.panels) - 1)

    def _panel(self, panel: Panel, top: float, *, last: bool) -> Iterator[str]:
        bottom = top + _HIGH
        values = [value for drawn in panel.lines for _, value in drawn.line.points]
        ticks = nice_ticks(max(values, default=0.0))
        for begins, ends in self.shaded:
            x, width = self._x(begins), self._x(ends) - self._x(begins)
            yield (
                f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_HIGH}" '
                f'fill="{_SHADE}"/>'
            )
        yield _text(_LEFT, top - 12, panel.title, weight=600)
        yield from _labels(panel, top - 12)
        for tick in ticks:
            y = bottom - _HIGH * tick / ticks[-1]
            yield _rule(_LEFT, y, _WIDE - _RIGHT, y)
            yield _text(_LEFT - 8, y + 4, f"{tick:g}{panel.unit}", colour=_GREY, anchor="end")
        for drawn in panel.lines:
            yield self._path(drawn, bottom, ticks[-1])
        if last:
            yield from self._times(bottom)

    def _path(self, drawn: Drawn, bottom: float, most: float) -> str:
        points = " L".join(
            f"{self._x(at):.1f},{bottom - _HIGH * value / most:.1f}"
            for at, value in drawn.line.points
        )
        dashes = ' stroke-dasharray="6 4"' if drawn.dashed else ""
        return (
            f'<path d="M{points}" fill="none" stroke="{drawn.colour}" stroke-width="2.2" '
            f'stroke-linejoin="round"{dashes}/>'
        )

    def _times(self, bottom: float) -> Iterator[str]:
        ticks = nice_ticks(self.until / _MINUTE, 7)
        for tick in ticks:
            if tick * _MINUTE <= self.until:
                x = self._x(tick * _MINUTE)
                yield _text(x, bottom + 18, f"{tick:g} min", colour=_GREY, anchor="middle")

    def _legend(self, y: float) -> Iterator[str]:
        yield (
            f'<rect x="{_LEFT}" y="{y - 11}" width="14" height="14" fill="{_SHADE}" '
            f'stroke="{_RULE}"/>'
        )
        yield _text(_LEFT + 22, y, self.shaded_means, colour=_GREY)

    def _x(self, at: float) -> float:
        return _LEFT + (_WIDE - _LEFT - _RIGHT) * at / self.until


def _labels(panel: Panel, y: float) -> Iterator[str]:
    """Name the lines, at the right above the panel."""
    x = float(_WIDE - _RIGHT)
    for drawn in reversed(panel.lines):
        name = drawn.line.name
        yield _text(x, y, name, colour=drawn.colour, anchor="end", weight=600)
        x -= 7.6 * len(name) + 6
        dashes = ' stroke-dasharray="6 4"' if drawn.dashed else ""
        yield (
            f'<line x1="{x - 24:.1f}" y1="{y - 4}" x2="{x:.1f}" y2="{y - 4}" '
            f'stroke="{drawn.colour}" stroke-width="2.2"{dashes}/>'
        )
        x -= 46


def _text(
    x: float,
    y: float,
    words: str,
    *,
    colour: str = _INK,
    anchor: str = "start",
    size: int = 13,
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" '
        f'font-size="{size}" font-weight="{weight}">{escape(words)}</text>'
    )


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1:.1f}" x2="{x2}" y2="{y2:.1f}" stroke="{_RULE}"/>'


def nice_ticks(most: float, count: int = _TICKS) -> list[float]:
    """Give round numbers from 0 to at least `most`, about so many.

    >>> nice_ticks(87), nice_ticks(0)
    ([0.0, 25.0, 50.0, 75.0, 100.0], [0.0, 1.0])
    """
    if most <= 0:
        return [0.0, 1.0]
    size = 10.0 ** len(str(int(most / count)))
    while size > most / count:
        size /= 10
    step = next(size * each for each in _STEPS if size * each * count >= most)
    return [step * number for number in range(int(-(-most // step)) + 1)]
