"""What the workers of the demonstration have told so far."""

from collections.abc import Callable
from dataclasses import dataclass, field

from headway.systems.consensus.telling import Told


@dataclass(slots=True)
class Heard:
    """Counts what is told. Keys name events, whichever attempt it is."""

    seconds: Callable[[], float]
    """Since the beginning, now."""
    retries: int = 0
    recovered: int = 0
    late: dict[str, int] = field(default_factory=dict)
    """Retries of events whose documents were not there yet, by key."""
    on_time: dict[str, float] = field(default_factory=dict)
    """When each of these was done at last."""
    parked: set[str] = field(default_factory=set)
    down: int = 0
    back: int = 0
    """Workers that saw the dependency go, and come back."""
    letters: list[Told] = field(default_factory=list)

    def take(self, told: Told) -> None:
        match told.what:
            case "retry":
                self.retries += 1
                if told.service == "chunking" and told.verdict == "not_yet":
                    self.late[told.key] = self.late.get(told.key, 0) + 1
            case "recovered":
                self.recovered += 1
                if told.key in self.late:
                    self.on_time[told.key] = self.seconds()
            case "parked":
                self.parked.add(told.key)
            case "down":
                self.down += told.service == "embedding"
            case "back":
                self.back += told.service == "embedding"
            case "letter":
                self.letters.append(told)
            case _:
                pass
