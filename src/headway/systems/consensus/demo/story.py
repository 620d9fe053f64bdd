"""What happens in the demonstration, as it is told: line by line, and at the end by faults."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headway.systems.consensus.demo.by_hand import Seen

Kind = Literal["plain", "fault", "answer"]


@dataclass(frozen=True, slots=True)
class Line:
    """Something that happened."""

    at: float
    """Seconds since the beginning."""
    kind: Kind
    """`fault`: what was done to it. `answer`: what Headway did about that."""
    about: str
    """The name of the fault; empty: it is about none."""
    words: str


@dataclass(slots=True, kw_only=True)
class Fault:
    """Something that goes wrong on purpose."""

    name: str
    short: str
    """One word for it."""
    injected: str = ""
    """What was done, in words."""
    happened: str = "nothing was seen of it"
    seen: bool = False
    """It really happened, and it really was overcome."""
    seconds: float | None = None
    """From the fault until all that it had hit went on; None: it waits for a person."""


@dataclass(frozen=True, slots=True)
class Faults:
    """All of them."""

    poison: Fault = field(default_factory=lambda: Fault(name="poison message", short="poison"))
    late: Fault = field(default_factory=lambda: Fault(name="documents late", short="late"))
    outage: Fault = field(default_factory=lambda: Fault(name="dependency down", short="outage"))
    loss: Fault = field(default_factory=lambda: Fault(name="event lost", short="loss"))
    death: Fault = field(default_factory=lambda: Fault(name="worker killed", short="death"))

    def all(self) -> list[Fault]:
        return [self.poison, self.late, self.outage, self.loss, self.death]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How far one of the services is."""

    name: str
    done: int
    total: int
    things: str


@dataclass(slots=True)
class Story:
    """All that can be shown at a moment."""

    on_line: Callable[[Line], None]
    messages: int = 0
    threads: int = 0
    lines: list[Line] = field(default_factory=list)
    seen: Seen | None = None
    retries: int = 0
    seconds: float = 0.0

    def say(self, words: str, kind: Kind = "plain", about: str = "") -> None:
        line = Line(self.seconds, kind, about, words)
        self.lines.append(line)
        self.on_line(line)

    def stages(self) -> Sequence[Stage]:
        """Say how far each stage is."""
        seen = self.seen or Seen(made={}, done={}, waiting={}, parked=0, letters=0)
        made, done = seen.made, seen.done
        chunks = max(made.get("chunks", 0), self.messages)
        return [
            Stage(
                name="parsed",
                done=made.get("messages", 0),
                total=self.messages,
                things="messages",
            ),
            Stage(
                name="chunked",
                done=done.get("messages", 0),
                total=self.messages,
                things="messages",
            ),
            Stage(name="embedded", done=done.get("chunks", 0), total=chunks, things="chunks"),
            Stage(
                name="summarized",
                done=made.get("summaries", 0),
                total=self.threads,
                things="threads",
            ),
        ]
