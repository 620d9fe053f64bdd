"""What everybody is given to carry, and the one stopwatch for all."""

import json
import time
from itertools import count

LINGER = 0.5
"""Seconds to stay connected after the last event, so that its acknowledgement gets through."""
PAYLOAD = {"order": 0, "text": "x" * 232}
BODY = json.dumps(PAYLOAD).encode()
assert len(BODY) == 256  # noqa: S101


class Tally:
    """Counts events from the first one given to a handler to the last; threads may share it."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.began = 0
        self.ended = 0
        self._numbers = count(1)

    def one(self) -> bool:
        """Count one more, and say whether it was the last."""
        number = next(self._numbers)
        if number == 1:
            self.began = time.perf_counter_ns()
        if number != self.expected:
            return False
        self.ended = time.perf_counter_ns()
        return True

    @property
    def each(self) -> float:
        """Nanoseconds for each event."""
        return (self.ended - self.began) / self.expected
