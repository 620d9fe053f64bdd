"""What happened in a run, and when: written down while it goes on, read when it is over."""

from collections import Counter
from dataclasses import dataclass, field

from headway.facts import (
    GapGivenUp,
    KeyCleared,
    ResultHeld,
    ResultReleased,
    SequenceFact,
    StaleDropped,
)
from headway.order import Why


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened to one position of a key. Times are seconds since the beginning."""

    at: float
    key: str
    position: int


@dataclass(slots=True)
class Journal:
    """A run in the order in which it happened."""

    now: float = 0.0
    applied: list[Entry] = field(default_factory=list)
    retracted: list[Entry] = field(default_factory=list)
    """Came late: the miss that was made up for them was taken back."""
    missed: list[Entry] = field(default_factory=list)
    """Made up as missed."""
    filled: list[float] = field(default_factory=list)
    """How long gaps were open that a result closed."""
    held: list[tuple[float, int, int]] = field(default_factory=list)
    """Whenever it changed: how many results are held, of how many keys."""
    added: int = 0
    cleared: int = 0
    given_up: Counter[Why] = field(default_factory=Counter)
    _holds: dict[str, set[int]] = field(default_factory=dict)
    _open: dict[str, dict[int, float]] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _held_now: int = 0

    @property
    def holds_any(self) -> bool:
        return bool(self._holds)

    def apply(self, key: str, position: int) -> None:
        """Write down that a result was applied in its turn."""
        self.applied.append(Entry(self.now, key, position))
        since = self._open.get(key, {}).pop(position, None)
        if since is not None:
            self.filled.append(self.now - since)
        self._last[key] = position

    def retract(self, key: str, position: int) -> None:
        self.retracted.append(Entry(self.now, key, position))

    def miss(self, key: str, position: int) -> None:
        self.missed.append(Entry(self.now, key, position))
        self._open.get(key, {}).pop(position, None)

    def hold(self, key: str, position: int, step: int) -> None:
        """Write down that a result is held, and that all before it are missing which are not."""
        held = self._holds.setdefault(key, set())
        held.add(position)
        self._held_now += 1
        self.added += 1
        self._note_held()
        gaps = self._open.setdefault(key, {})
        for missing in range(self._last.get(key, position) + step, position, step):
            if missing not in held:
                gaps.setdefault(missing, self.now)

    def release(self, key: str, *positions: int) -> None:
        held = self._holds.get(key, set())
        self._held_now -= len(held.intersection(positions))
        held.difference_update(positions)
        if not held:
            self._holds.pop(key, None)
        self._note_held()

    def first_held(self, key: str, number: int) -> list[int]:
        return sorted(self._holds.get(key, ()))[:number]

    def _note_held(self) -> None:
        self.held.append((self.now, self._held_now, len(self._holds)))


class JournalWatcher:
    """Hears what the resequencer announces, and writes it down."""

    def __init__(self, journal: Journal, step: int) -> None:
        self._journal = journal
        self._step = step

    def tell(self, fact: SequenceFact) -> None:
        journal = self._journal
        match fact:
            case ResultHeld(key, position):
                journal.hold(key, position, self._step)
            case ResultReleased(key, position):
                journal.release(key, position)
            case StaleDropped(key, number):
                journal.release(key, *journal.first_held(key, number))
            case KeyCleared():
                journal.cleared += 1
            case GapGivenUp(_, why):
                journal.given_up[why] += 1
            case _:
                pass
