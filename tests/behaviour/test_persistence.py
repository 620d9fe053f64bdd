"""An engine that is away is asked again and again, and the log is not filled with it."""

import logging
import re
from datetime import datetime, timedelta
from itertools import cycle, pairwise

import pytest
from pymongo.errors import NotPrimaryError

from headway.runtime.persistence import Persistent
from headway.testing.chance import Seeded
from headway.testing.clock import VirtualClock


class Fickle(Seeded):
    """As far up as it goes, and then as far down."""

    def __init__(self) -> None:
        super().__init__()
        self._draws = cycle([0.999, 0.0])

    def draw(self) -> float:
        return next(self._draws)


class Away:
    """Does not answer for a minute."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._back = clock.now() + timedelta(minutes=1)
        self.asked: list[datetime] = []

    async def __call__(self) -> str:
        self.asked.append(self._clock.now())
        if self._clock.now() < self._back:
            raise ConnectionError("nobody is there")
        return "here"


async def asked(caplog: pytest.LogCaptureFixture) -> Away:
    clock = VirtualClock()
    away = Away(clock)
    with caplog.at_level(logging.WARNING, "headway"):
        assert (
            await Persistent(clock, Fickle()).until_available("Opening the engine", away) == "here"
        )
    return away


async def test_the_loss_is_said_at_once_and_then_seldom(caplog: pytest.LogCaptureFixture) -> None:
    await asked(caplog)
    first, *again, last = [each.getMessage() for each in caplog.records]
    why = "ConnectionError nobody is there"
    assert first == f"Opening the engine failed (attempt 1): {why}. Retrying in 0.1 s."
    (repeated,) = again
    said = rf"Opening the engine failed \(attempt \d+\): {why}\. Retrying in [45][.\d]* s\."
    assert re.fullmatch(said, repeated)
    assert re.fullmatch(r"Opening the engine works again after \d+ failed attempts\.", last)


async def test_a_database_that_restarts_needs_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    raised = [NotPrimaryError("node is shutting down", {"topologyVersion": b"x"}), KeyError("k")]

    async def call() -> None:
        if raised:
            raise raised.pop(0)

    for _ in range(2):
        await Persistent(VirtualClock(), Fickle()).until_available("Opening the engine", call)
    first = caplog.records[0]
    said = "Opening the engine failed (attempt 1): NotPrimaryError node is shutting down. "
    assert first.getMessage().startswith(said)
    assert not first.exc_info


async def test_the_waits_grow_from_one_to_the_next(caplog: pytest.LogCaptureFixture) -> None:
    at = (await asked(caplog)).asked
    waits = [after - before for before, after in pairwise(at)]
    assert waits[:5] == sorted(waits[:5])
    assert max(waits) <= timedelta(seconds=5)
