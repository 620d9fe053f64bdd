"""What goes wrong, and when: everything is decided by the seed."""

import random
from enum import StrEnum


class Disposition(StrEnum):
    """What becomes of one call to an engine."""

    WELL = "well"
    DIES_BEFORE = "dies before"
    DIES_AFTER = "dies after"
    DIES_HALFWAY = "dies halfway"
    FAILS = "fails"
    """It raises, and nothing took effect."""
    ANSWER_LOST = "answer lost"
    """It raises although all of it took effect."""
    HALF_LOST = "half lost"
    """It raises, and the first half took effect."""
    ACK_LOST = "ack lost"
    """It returns as if all were well, and then it turns out that the connection was gone."""


_FATES = (
    Disposition.DIES_BEFORE,
    Disposition.DIES_AFTER,
    Disposition.DIES_HALFWAY,
    Disposition.FAILS,
    Disposition.ANSWER_LOST,
    Disposition.HALF_LOST,
    Disposition.ACK_LOST,
)
_STEPS = (
    "take", "begin", "settle", "publish", "finish", "commit", "find", "dispatched",
    "undispatched", "write letters", "requeue", "decide", "fetch",
)  # fmt: skip


class Faults:
    """Rolls the dice for every step. Most worlds have a step of their own that often goes wrong."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        roll = self.random.random
        self.left = int(roll() * 16)
        """How many are still to come; a world without faults must be right too."""
        self._often = 0.01 + 0.05 * roll()
        self._focus = self.random.choice(_STEPS)
        self._focus_often = 0.1 + 0.4 * roll()
        self._slow = 0.02 * roll() ** 3
        self._lazy = roll()

    @property
    def is_over(self) -> bool:
        return self.left <= 0

    def fate(self, step: str) -> Disposition:
        """Say what becomes of a call."""
        if self.left <= 0:
            return Disposition.WELL
        often = self._focus_often if step == self._focus else self._often
        if self.random.random() >= often:
            return Disposition.WELL
        self.left -= 1
        return self.random.choice(_FATES)

    def latency(self) -> float:
        """Say how many seconds one way to the engine takes; often it does not suspend at all."""
        if self.random.random() < self._lazy:
            return 0.0
        if self.random.random() < self._slow:
            return 20 * self.random.random()
        return 0.02 * self.random.random()

    def some(self, count: int) -> int:
        """Say how many of so many take effect when a call breaks off halfway."""
        return self.random.randint(0, count)

    def happens(self, often: float) -> bool:
        return self.random.random() < often
