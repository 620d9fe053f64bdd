"""Sweepers leave alone what no worker would handle: a type of events that is paused."""

from datetime import timedelta

from headway import Event, Service, Work
from headway.facts import FloodChanged, Skip
from headway.retrying import FloodRule
from headway.settings import SweepSettings
from headway.testing.trial import Trial
from tests.behaviour.scenes import MINUTE, SECOND, until

FAILED_BEFORE = [{"_id": f"before {n}", "status": "failed", "attemptCount": 1} for n in range(6)]
"""Not by the bad deploy, and not permanently: a sweep takes these up."""


class Shop:
    """A service whose first type of events fails as long as it is broken."""

    def __init__(self, flood: FloodRule) -> None:
        self.is_broken = True
        orders = Service("orders", flood=flood)

        @orders.on("OrderPlaced", documents=("orders", "order"))
        async def place(event: Event, work: Work) -> None:
            if self.is_broken:
                raise ValueError("a bad deploy")

        @orders.on("OrderPaid", documents=("payments", "payment"))
        async def pay(event: Event, work: Work) -> None: ...

        self.trial = Trial(orders)

    async def publish(self, count: int) -> None:
        for number in range(count):
            await self.trial.put("orders", {"_id": str(number)})
            await self.trial.publish("OrderPlaced", {"order": str(number)})

    def is_paused(self) -> bool:
        changes = self.trial.facts.of(FloodChanged)
        return bool(changes) and changes[-1].paused


async def test_sweepers_learn_of_a_pause_and_its_end_and_go_on_with_other_types() -> None:
    shop = Shop(FloodRule(at_least=3, probe_every=MINUTE))
    trial = shop.trial
    await shop.publish(3)
    await trial.put("orders", *FAILED_BEFORE[:3])
    await trial.put("payments", *({"_id": str(number)} for number in range(5)))
    async with trial.running():
        await until(trial, shop.is_paused)
        await trial.clock.wait(SECOND)
        ended = await trial.sweep(SweepSettings(cap=0, base_delay=timedelta()))
        orders, payments = ended.collections
        assert (orders.requeued, orders.skipped[Skip.DOWN]) == (1, 2), "a probe"
        assert (payments.requeued, payments.skipped) == (5, {})
        shop.is_broken = False
        await until(trial, lambda: not shop.is_paused())
        await trial.clock.wait(SECOND)
        ended = await trial.sweep(SweepSettings(cap=0, base_delay=timedelta()))
        assert Skip.DOWN not in ended.collections[0].skipped
    assert {each["status"] for each in await trial.documents("payments")} == {"processed"}


async def test_a_paused_type_without_events_is_probed_by_a_sweep() -> None:
    """Otherwise the sweeper would wait for the worker, and the worker for an event, forever."""
    shop = Shop(FloodRule(at_least=3))
    trial = shop.trial
    await trial.put("orders", {"_id": "spent", "status": "failed", "attemptCount": 3})
    await trial.put("orders", *FAILED_BEFORE)
    async with trial.running():
        await shop.publish(6)
        await trial.clock.wait(10 * MINUTE)
        assert shop.is_paused()
        shop.is_broken = False
        first, _ = (await trial.sweep()).collections
        assert (first.requeued, first.given_up) == (1, 1)
        await trial.clock.wait(2 * MINUTE)
        assert not shop.is_paused(), "its probe got through"
        second, _ = (await trial.sweep()).collections
        assert (second.requeued, second.skipped) == (5, {})
        await trial.clock.wait(2 * MINUTE)
    found = {each["_id"]: each["status"] for each in await trial.documents("orders")}
    assert found.pop("spent") == "failed_max_retries"
    permanent = {found.pop(str(number)) for number in range(6)}
    assert permanent == {"failed"}, "no sweep takes up what failed permanently"
    assert set(found.values()) == {"processed"}
