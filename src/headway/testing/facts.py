"""An observer for tests: it keeps the facts, so that a test can ask what happened."""

from typing import TypeVar

from headway.core.facts import Fact, Reached

F = TypeVar("F", bound=Fact)


class Recorder:
    """Keeps every fact in the order in which it was told.

    Give it as `observer=`, then ask for one kind of fact: `recorder.of(RetryScheduled)`.
    """

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def tell(self, fact: Fact) -> None:
        if not isinstance(fact, Reached):  # every few seconds, and nothing has happened
            self.facts.append(fact)

    def of(self, kind: type[F]) -> list[F]:
        """Give the facts of one kind."""
        return [fact for fact in self.facts if isinstance(fact, kind)]
