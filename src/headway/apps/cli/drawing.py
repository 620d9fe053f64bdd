"""Figures over time, drawn with the blocks that every terminal has."""

from collections.abc import Iterator, Sequence

Points = Sequence[tuple[float, float]]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_FULL = len(_BLOCKS) - 1
_NOTHING = "▁"
_MINUTE = 60
_FOR_A_LABEL = 8


def columns(points: Points, until: float, width: int) -> list[float]:
    """Give the highest value in each of so many equal times; where there is none, the last one."""
    found: list[float | None] = [None] * width
    for at, value in points:
        column = min(int(at / until * width), width - 1)
        found[column] = max(value, found[column] or 0.0)
    last, filled = 0.0, []
    for each in found:
        last = last if each is None else each
        filled.append(last)
    return filled


def bars(values: Sequence[float], most: float, height: int) -> Iterator[str]:
    """Draw values as columns, the highest row first. What is not 0 is seen, however small it is.

    >>> list(bars([0, 1, 8, 16], 16, 2))
    ['   █', '▁▂██']
    """
    eighths = [
        0 if value <= 0 else max(round(value / most * height * _FULL), 2) for value in values
    ]
    for row in reversed(range(height)):
        line = "".join(_BLOCKS[min(max(each - row * _FULL, 0), _FULL)] for each in eighths)
        yield line if row else line.replace(" ", _NOTHING)


def ruler(shaded: Sequence[tuple[float, float]], until: float, width: int) -> str:
    """Draw an axis on which some times stand out.

    >>> ruler([(2, 4)], 10, 10)
    '──▒▒──────'
    """
    signs = ["─"] * width
    for begins, ends in shaded:
        for column in range(int(begins / until * width), int(ends / until * width)):
            signs[column] = "▒"
    return "".join(signs)


def minutes(until: float, width: int, step: int = 10) -> str:
    """Write minutes below an axis, at every so many.

    >>> minutes(1200, 20)
    '0         10        20 min'
    """
    line = [" "] * (width + _FOR_A_LABEL)
    for minute in range(0, int(until) // _MINUTE + 1, step):
        at = int(minute * _MINUTE / until * width)
        line[at : at + len(str(minute))] = str(minute)
    return "".join(line).rstrip() + " min"
