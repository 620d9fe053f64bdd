"""Sweepers leave alone what nobody would handle."""

from datetime import timedelta

from headway import FloodRule, Service
from headway.core.event import Event
from headway.core.facts import FloodChanged
from headway.core.sweep_settings import SweepSettings
from headway.core.sweep_totals import Skip
from headway.runtime.down_notes import DOWN
from headway.runtime.work import Work
from headway.testing.trial import Trial
from tests.services.scenes import until


async def test_a_service_that_is_paused_says_so_to_sweepers_and_takes_it_back() -> None:
    broken = [True]
    orders = Service("orders", flood=FloodRule(at_least=3, probe_every=timedelta(minutes=1)))

    @orders.on("OrderPlaced", documents=("orders", "order"))
    async def handle(event: Event, work: Work) -> None:
        if broken[0]:
            raise ValueError("a bad deploy")

    trial = Trial(orders)
    sweeping = trial.engine.sweeping
    assert sweeping is not None
    for number in range(6):
        await trial.put("orders", {"_id": str(number)})
        await trial.publish("OrderPlaced", {"order": str(number)})
    async with trial.running():
        await until(trial, lambda: any(each.paused for each in trial.facts.of(FloodChanged)))
        await trial.clock.wait(timedelta(seconds=1))
        assert list(await sweeping.leases.held(DOWN)) == ["down/orders/*"]
        swept = await trial.sweep(SweepSettings(cap=0, base_delay=timedelta()))
        assert swept.collections[0].requeued == 1
        assert swept.collections[0].skipped[Skip.DOWN] == 2
        broken[0] = False
        await until(trial, lambda: not trial.facts.of(FloodChanged)[-1].paused)
        await trial.clock.wait(timedelta(seconds=1))
        assert list(await sweeping.leases.held(DOWN)) == []


async def test_a_paused_service_without_events_is_set_going_by_a_sweep() -> None:
    """Else the sweeper would wait for the service, and the service for an event, for ever."""
    broken = [True]
    orders = Service("orders", flood=FloodRule(at_least=3))

    @orders.on("OrderPlaced", documents=("orders", "order"))
    async def handle(event: Event, work: Work) -> None:
        if broken[0]:
            raise ValueError("a bad deploy")

    trial = Trial(orders)
    for number in range(6):
        await trial.put("orders", {"_id": str(number)})
    await trial.put("orders", {"_id": "spent", "status": "failed", "attemptCount": 3})
    async with trial.running():
        for number in range(6):
            await trial.publish("OrderPlaced", {"order": str(number)})
        await trial.clock.wait(timedelta(hours=1))
        assert trial.facts.of(FloodChanged)[-1].paused
        broken[0] = False
        (first,) = (await trial.sweep()).collections
        assert (first.requeued, first.given_up) == (1, 1)
        await trial.clock.wait(timedelta(minutes=2))
        assert not trial.facts.of(FloodChanged)[-1].paused, "its probe got through"
        (second,) = (await trial.sweep()).collections
        assert (second.requeued, second.skipped) == (5, {})
        await trial.clock.wait(timedelta(minutes=2))
    found = {each["_id"]: each["status"] for each in await trial.documents("orders")}
    assert found.pop("spent") == "failed_max_retries"
    assert set(found.values()) == {"processed"}
