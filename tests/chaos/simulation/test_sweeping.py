"""Sweepers and workers that die between any two steps: every document ends, and ends once."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.adapters.memory import sweeping as memory_sweeping
from headway.runtime import sweep_pages
from headway.testing.ports import Judgement, Requeue, SweepRule, View, judge, sweep_operation
from tests.chaos.simulation.loop import run
from tests.chaos.simulation.simulate import _silence
from tests.chaos.simulation.sweeping import SweptWorld


def violations(seed: int) -> list[str]:
    async def course() -> list[str]:
        world = SweptWorld(seed)
        await world.live()
        found = world.check()
        return [*found, world.disks.history.told()] if found else []

    with _silence():
        return run(course())


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**20))
def test_every_document_is_processed_or_given_up_with_no_attempt_too_many(seed: int) -> None:
    found = violations(seed)
    assert not found, f"seed {seed}:\n" + "\n".join(found[:-1]) + "\n" + found[-1][-6000:]


def claims_whatever_it_has_become(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory_sweeping, "watched", lambda _rule: ())


def makes_a_new_attempt_of_a_claim_that_ended(patch: pytest.MonkeyPatch) -> None:
    def hasty(document: Any, rule: SweepRule, now: datetime) -> Judgement:
        found = judge(document, rule, now)
        if isinstance(found, Requeue) and found.again:
            generation = found.generation + 1
            operation = sweep_operation(rule.collection, document["_id"], generation, now)
            return Requeue(operation, generation, found.attempt + 1)
        return found

    patch.setattr(sweep_pages, "judge", hasty)


def never_sends_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweep_pages, "VIEWS", (View.LEASE_OVER, View.FAILED))


BUGS = (
    claims_whatever_it_has_become,
    makes_a_new_attempt_of_a_claim_that_ended,
    never_sends_again,
)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert any(violations(seed) for seed in range(300)), "300 seeds did not find it"


def test_a_seed_always_takes_the_same_course() -> None:
    assert [story(seed) for seed in range(3)] == [story(seed) for seed in range(3)]


def story(seed: int) -> str:
    async def course() -> str:
        world = SweptWorld(seed)
        await world.live()
        return world.disks.history.told()

    with _silence():
        return run(course())
