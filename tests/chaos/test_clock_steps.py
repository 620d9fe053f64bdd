"""The wall clock is set, forward or back, while real workers run and between their runs."""

import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from headway.retrying import TRANSIENT
from tests.chaos.running import MODULES, Site

STEPS = {
    "an hour back": timedelta(hours=-1),
    "a year forward": timedelta(days=365),
}
STEPPED = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
DELAY = TRANSIENT.backoff.delay(1, 0.0)
"""From the first try of an event to the second."""
ON_A_BUSY_MACHINE = 20.0


class SteppedSite(Site):
    """A machine whose wall clock a test can set."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            **super().environment,
            "PYTHONPATH": f"{MODULES.parent / 'stepped'}:{MODULES}",
            "WALL_CLOCK_STEP": str(self.folder / "step"),
        }

    def set_clock(self, step: timedelta) -> None:
        new = self.folder / "step.new"
        new.write_text(str(step.total_seconds()))
        new.replace(self.folder / "step")

    def publish_by_command(self, *events: dict[str, object]) -> None:
        for event in events:
            done = self.headway("publish", "OrderPlaced", json.dumps(event))
            assert done.returncode == 0, done.stderr

    def orders(self) -> Sequence[object]:
        try:
            return [document["order"] for document in self.documents("orders")]
        except sqlite3.OperationalError:
            return []


@pytest.fixture
def site(tmp_path: Path) -> SteppedSite:
    site = SteppedSite(tmp_path)
    site.set_clock(timedelta())
    return site


def declared(site: SteppedSite) -> None:
    """Let the queues be known, as they are where services ran before."""
    with site.running("shop"):
        site.wait_for_workers(1)


@STEPPED
def test_an_event_published_before_the_step_reaches_a_worker_started_after_it(
    site: SteppedSite, step: timedelta
) -> None:
    declared(site)
    site.publish_by_command({"order": 1})
    site.set_clock(step)
    with site.running("shop"):
        site.wait(lambda: site.orders() == [1], "it is done", ON_A_BUSY_MACHINE)
    assert site.headway("verify").returncode == 0


@STEPPED
def test_a_worker_that_runs_through_the_step_and_a_later_one_share_events(
    site: SteppedSite, step: timedelta
) -> None:
    with site.running("shop"):
        site.wait_for_workers(1)
        site.set_clock(step)
        site.publish_by_command({"order": 1})
        site.wait(lambda: site.orders() == [1], "the older worker takes it", ON_A_BUSY_MACHINE)
        # Its own events (OrderConfirmed) were published by a process older than the step.
        site.wait(lambda: len(site.documents("mails")) == 1, "its own too", ON_A_BUSY_MACHINE)


@STEPPED
@pytest.mark.parametrize("restarts", [True, False])
def test_a_retry_is_neither_early_nor_stuck(
    site: SteppedSite, step: timedelta, *, restarts: bool
) -> None:
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(site.running("shop"))
        site.wait_for_workers(1)
        site.publish_by_command({"order": 1, "kind": "times out"})
        site.wait(lambda: tries(site) == [(1,)], "it failed once")
        began = time.monotonic()
        if restarts:
            first.close()
        site.set_clock(step)
        if restarts:
            second.enter_context(site.running("shop"))
        longest = DELAY.total_seconds() + ON_A_BUSY_MACHINE
        site.wait(lambda: tries(site) != [(1,)], "it is tried again", longest)
    assert time.monotonic() - began > DELAY.total_seconds() - 1
    letters = site.query("select count(*) from headway_letters")
    assert letters == [(0,)], "the step counts against no time limit"


def tries(site: SteppedSite) -> list[tuple[object, ...]]:
    return site.query("select failures + not_yet from headway_items")
