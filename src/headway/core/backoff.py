"""How long to wait before the next attempt: pure functions of the retry number and a draw."""

from dataclasses import dataclass
from datetime import timedelta

from headway.core.errors import ConfigurationError

_ZERO = timedelta()
_LONGEST = timedelta(days=36_500)  # a longer wait would leave the calendar


@dataclass(frozen=True, slots=True)
class FullJitter:
    """Wait `draw * pause`: anything from nothing to the whole pause, so that callers spread out."""

    def spread(self, pause: float, draw: float) -> float:
        return pause * draw


@dataclass(frozen=True, slots=True)
class AddedJitter:
    """Wait `pause + draw * up_to`: never less than the pause."""

    up_to: timedelta = timedelta(milliseconds=100)

    def __post_init__(self) -> None:
        _refuse_bad("up_to", self.up_to)

    def spread(self, pause: float, draw: float) -> float:
        return pause + self.up_to.total_seconds() * draw


@dataclass(frozen=True, slots=True)
class NoJitter:
    """Wait exactly the pause. For tests, and where a single caller is all there is."""

    def spread(self, pause: float, draw: float) -> float:  # noqa: ARG002 (the shape of a jitter)
        return pause


Jitter = FullJitter | AddedJitter | NoJitter


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Before retry k: `min(jitter(min(base * factor**(k-1), cap)), cap)`.

    The cap holds for the sum, jitter included: no wait is ever longer than `cap`.
    """

    base: timedelta
    factor: float = 2.0
    cap: timedelta
    jitter: Jitter = FullJitter()

    def __post_init__(self) -> None:
        _refuse_bad("base", self.base)
        _refuse_bad("cap", self.cap)
        _refuse_no_jitter(self.jitter)
        factor: object = self.factor
        if not isinstance(factor, int | float) or not 1.0 <= factor < float("inf"):
            raise ConfigurationError(
                f"factor={self.factor!r} is not accepted: backoff must not shrink, "
                "use a finite number from 1.0"
            )

    def delay(self, retry: int, draw: float) -> timedelta:
        cap = self.cap.total_seconds()
        try:
            pause = min(self.base.total_seconds() * float(self.factor) ** (retry - 1), cap)
        except OverflowError:  # a power this large is far beyond any cap
            pause = cap if self.base else 0.0
        return timedelta(seconds=min(self.jitter.spread(pause, draw), cap))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """Before retry k: the k-th step, and the last one for all that follow; then the jitter."""

    steps: tuple[timedelta, ...]
    jitter: Jitter = NoJitter()

    def __post_init__(self) -> None:
        if not self.steps:
            raise ConfigurationError("steps=() is not accepted: name at least one wait")
        for step in self.steps:
            _refuse_bad("steps", step)
        _refuse_no_jitter(self.jitter)

    def delay(self, retry: int, draw: float) -> timedelta:
        pause = self.steps[min(retry, len(self.steps)) - 1].total_seconds()
        return timedelta(seconds=self.jitter.spread(pause, draw))


Backoff = Exponential | Stepped


def _refuse_no_jitter(jitter: object) -> None:
    if not isinstance(jitter, FullJitter | AddedJitter | NoJitter):
        raise ConfigurationError(
            f"jitter={jitter!r} is not accepted: use FullJitter(), AddedJitter(...) or NoJitter()"
        )


def _refuse_bad(name: str, value: timedelta) -> None:
    if not isinstance(value, timedelta):
        raise ConfigurationError(
            f"{name}={value!r} is not accepted: use a timedelta, such as timedelta(seconds=1)"
        )
    if value < _ZERO:
        raise ConfigurationError(f"{name}={value!r} is not accepted: a wait cannot be negative")
    if value > _LONGEST:
        raise ConfigurationError(f"{name}={value!r} is not accepted: use at most a hundred years")
