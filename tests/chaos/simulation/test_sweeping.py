"""Sweepers and workers that die between any two steps: every document ends, and ends once."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.testing.ports import Judgement, Requeue, SweepRule, View, judge, sweep_operation
from tests.chaos.simulation.loop import run
from tests.chaos.simulation.simulate import silence
from tests.chaos.simulation.sweeping import SweptWorld


def course_of(seed: int) -> tuple[list[str], str]:
    """Give the promises that were broken, and the story."""

    async def course() -> tuple[list[str], str]:
        world = SweptWorld(seed)
        await world.live()
        return world.check(), world.disks.history.told()

    with silence():
        return run(course())


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**20))
def test_every_document_is_processed_or_given_up_with_no_attempt_too_many(seed: int) -> None:
    found, story = course_of(seed)
    assert not found, f"seed {seed}:\n" + "\n".join(found) + "\n" + story[-6000:]


def claims_whatever_it_has_become(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("headway.adapters.memory.sweeping.watched", lambda _rule: ())


def makes_a_new_attempt_of_a_claim_that_ended(patch: pytest.MonkeyPatch) -> None:
    def hasty(document: Any, rule: SweepRule, now: datetime) -> Judgement:
        found = judge(document, rule, now)
        if isinstance(found, Requeue) and found.again:
            generation = found.generation + 1
            operation = sweep_operation(rule.collection, document["_id"], generation, now)
            return Requeue(operation, generation, found.attempt + 1)
        return found

    patch.setattr("headway.runtime.sweep_pages.judge", hasty)


def never_sends_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("headway.runtime.sweep_pages.VIEWS", (View.LEASE_OVER, View.FAILED))


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
    assert any(course_of(seed)[0] for seed in range(300)), "300 seeds did not find it"


def test_a_seed_always_takes_the_same_course() -> None:
    assert [course_of(seed) for seed in range(3)] == [course_of(seed) for seed in range(3)]
