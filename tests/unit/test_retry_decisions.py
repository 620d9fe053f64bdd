"""What decides about outages and floods, where its borders are: each was once changed unseen."""

from datetime import timedelta

import pytest

from headway import Event, Service, Work
from headway.facts import FloodChanged
from headway.retrying import FloodRule, OutageRule
from headway.settings import WorkerSettings
from headway.testing.trial import Trial


def test_one_item_may_be_enough_for_an_outage() -> None:
    assert OutageRule(distinct=1).distinct == 1


@pytest.mark.parametrize(
    ("good", "seconds", "bad", "pauses"),
    [
        (4, 1, 4, []),
        (3, 1, 4, [(4, 7)]),
        (30, 30, 4, []),
        (30, 90, 4, [(4, 4)]),
        (0, 0, 3, []),
    ],
)
async def test_bad_events_pause_a_type_if_they_are_more_than_half_of_the_last_minute(
    good: int, seconds: int, bad: int, pauses: list[tuple[int, int]]
) -> None:
    orders, handled = Service("orders", flood=FloodRule(at_least=4)), 0

    @orders.on("Placed")
    async def handle(event: Event, work: Work) -> None:
        nonlocal handled
        handled += 1
        if event.data["bad"]:
            raise ValueError

    trial = Trial(orders, settings=WorkerSettings(prefetch=1))
    async with trial.running():
        for is_bad, count in ((False, good), (True, bad)):
            for _ in range(count):
                await trial.publish("Placed", {"bad": is_bad})
            while handled < good + bad * is_bad:
                await trial.clock.wait(timedelta(milliseconds=1))
            await trial.clock.wait(timedelta(seconds=seconds))
    changes = trial.facts.of(FloodChanged)
    assert [(each.permanent, each.handled) for each in changes if each.paused] == pauses
