"""The results of many monitors, each in its order, from all over the keys."""

import random
import uuid
from typing import NamedTuple

from headway.systems.uptime.results import CheckResult, CheckStatus, encode

STEP = 60_000
"""A check each minute."""
_FIRST = 1_760_000_040_000


class Result(NamedTuple):
    """What a consumer has in its hands when it asks whose turn it is."""

    key: str
    position: int
    payload: bytes


class Monitors:
    """Keys, and how far each of them is. Any 200 results in a row are of different keys."""

    def __init__(self, count: int) -> None:
        chance = random.Random(count)
        self.keys = [uuid.UUID(int=chance.getrandbits(128)).hex for _ in range(count)]
        self._last = dict.fromkeys(self.keys, _FIRST - STEP)
        self._turn = 0

    def next(self, count: int) -> list[Result]:
        """Give results that nobody saw yet, all in their turn."""
        return [self._next() for _ in range(count)]

    def shuffle(self) -> None:
        """Go on in another order than the one in which the server came to know the keys."""
        random.Random(len(self.keys)).shuffle(self.keys)

    def skip(self) -> None:
        """Let the next result of each key be one that comes later."""
        for key in self.keys:
            self._last[key] += STEP

    def skipped(self, results_since: int) -> list[Result]:
        """Give the one of each key that was skipped before its last so many results."""
        return [result(key, last - results_since * STEP) for key, last in self._last.items()]

    def last(self, key: str) -> int:
        """The position of a key's latest result."""
        return self._last[key]

    def _next(self) -> Result:
        key = self.keys[self._turn]
        self._turn = (self._turn + 1) % len(self.keys)
        self._last[key] += STEP
        return result(key, self._last[key])


def result(key: str, position: int) -> Result:
    check = CheckResult(
        guid=f"{position:032x}",
        subscription_id=key,
        status=CheckStatus.SUCCESS,
        scheduled_check_time_ms=position,
        actual_check_time_ms=position + 42,
        region="us-west",
        duration_ms=137.5,
        trace_id=f"{position:032x}",
    )
    return Result(key, position, encode(check))
