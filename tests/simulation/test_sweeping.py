"""Sweepers and workers that die between any two steps: every document ends, and ends once."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.loop import run
from tests.simulation.simulate import _silence
from tests.simulation.sweeping import SweptWorld


def violations(seed: int, candidates: Callable[[Any], Any] | None = None) -> list[str]:
    async def course() -> list[str]:
        world = SweptWorld(seed, candidates=candidates)
        await world.live()
        found = world.check()
        return [*found, world.disks.history.told()] if found else []

    with _silence():
        return run(course())


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**20))
def test_every_document_is_processed_or_given_up_with_no_attempt_too_many(seed: int) -> None:
    found = violations(seed)
    assert not found, f"seed {seed}:\n" + "\n".join(found[:-1]) + "\n" + found[-1][-6000:]
