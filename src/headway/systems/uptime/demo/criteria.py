"""What must be true of a run: the plan's own success criteria, and what Headway adds to them."""

from dataclasses import dataclass

from headway.systems.uptime.demo.measured import SOON, Measured

_FEWER = 0.5
_FILLED_SOON = 0.9
_TIMEOUTS = 0.05
_BREAKERS = 0.001
_HELD = 2.0


@dataclass(frozen=True, slots=True)
class Criterion:
    """One of them, with what was seen."""

    wanted: str
    seen: str
    met: bool


def criteria(plain: Measured, ordered: Measured) -> list[Criterion]:
    """Compare the same input through both ways."""
    misses = plain.false_misses + plain.true_misses
    left = ordered.false_misses + ordered.true_misses
    fewer = _share(misses - left, misses)
    soon = _share(ordered.filled_soon, ordered.filled)
    timeouts = _share(ordered.timeouts, ordered.added)
    breakers = _share(ordered.breakers, ordered.added)
    whole = ordered.applied == ordered.came and not ordered.twice and ordered.in_order
    return [
        Criterion(
            f"at least {_FEWER:.0%} fewer misses made up",
            f"{fewer:.1%} ({left} instead of {misses})",
            bool(misses) and fewer >= _FEWER,
        ),
        Criterion(
            f"at least {_FILLED_SOON:.0%} of gaps filled within {SOON:.0f} s",
            f"{soon:.1%} of {ordered.filled}",
            bool(ordered.filled) and soon >= _FILLED_SOON,
        ),
        Criterion(
            f"fewer timeouts than {_TIMEOUTS:.0%} of held results",
            f"{timeouts:.1%} ({ordered.timeouts} of {ordered.added})",
            bool(ordered.added) and timeouts < _TIMEOUTS,
        ),
        Criterion(
            f"breaker below {_BREAKERS:.1%} of held results",
            f"{breakers:.2%} ({ordered.breakers})",
            bool(ordered.added) and breakers < _BREAKERS,
        ),
        Criterion(
            f"1 to {_HELD:.0f} results held, on average, where any are",
            f"{ordered.mean_held:.2f}",
            1 <= ordered.mean_held <= _HELD,
        ),
        Criterion("no false miss", str(ordered.false_misses), ordered.false_misses == 0),
        Criterion(
            "every true miss found",
            f"{ordered.true_misses} of {ordered.never_came}",
            ordered.true_misses == ordered.never_came,
        ),
        Criterion(
            "every result applied once, in its order",
            f"{ordered.applied} of {ordered.came}, {'in' if ordered.in_order else 'OUT OF'} order"
            + f", {ordered.twice} twice" * bool(ordered.twice),
            whole,
        ),
    ]


def _share(part: int, of: int) -> float:
    return part / of if of else 0.0
