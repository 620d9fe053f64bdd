"""Sweepers leave alone what nobody would handle."""

from datetime import timedelta

from headway import Event, Service, Work
from headway.facts import FloodChanged, Skip
from headway.retrying import FloodRule
from headway.runtime.down_notes import DOWN
from headway.settings import SweepSettings
from headway.testing.trial import Trial
from tests.behaviour.scenes import until

FAILED_BEFORE = [{"_id": f"before {n}", "status": "failed", "attemptCount": 1} for n in range(6)]
"""Not by the bad deploy, and not permanently: a sweep takes these up."""


async def test_sweepers_learn_of_a_pause_and_of_its_end() -> None:
    broken = [True]
    orders = Service("orders", flood=FloodRule(at_least=3, probe_every=timedelta(minutes=1)))

    @orders.on("OrderPlaced", documents=("orders", "order"))
    async def handle(event: Event, work: Work) -> None:
        if broken[0]:
            raise ValueError("a bad deploy")

    trial = Trial(orders)
    sweeping = trial.engine.sweeping
    assert sweeping is not None
    for number in range(3):
        await trial.put("orders", {"_id": str(number)})
        await trial.publish("OrderPlaced", {"order": str(number)})
    await trial.put("orders", *FAILED_BEFORE[:3])
    async with trial.running():
        await until(trial, lambda: any(each.paused for each in trial.facts.of(FloodChanged)))
        await trial.clock.wait(timedelta(seconds=1))
        assert list(await sweeping.leases.held(DOWN)) == ["down/orders/OrderPlaced/paused"]
        swept = await trial.sweep(SweepSettings(cap=0, base_delay=timedelta()))
        assert swept.collections[0].requeued == 1
        assert swept.collections[0].skipped[Skip.DOWN] == 2
        broken[0] = False
        await until(trial, lambda: not trial.facts.of(FloodChanged)[-1].paused)
        await trial.clock.wait(timedelta(seconds=1))
        assert list(await sweeping.leases.held(DOWN)) == []


async def test_a_paused_type_without_events_is_probed_by_a_sweep() -> None:
    """Otherwise the sweeper would wait for the worker, and the worker for an event, forever."""
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
    await trial.put("orders", *FAILED_BEFORE)
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
    permanent = {found.pop(str(number)) for number in range(6)}
    assert permanent == {"failed"}, "no sweep takes up what failed permanently"
    assert set(found.values()) == {"processed"}


async def test_sweepers_go_on_with_the_other_types_of_a_service() -> None:
    orders = Service("orders", flood=FloodRule(at_least=3))

    @orders.on("OrderPlaced", documents=("orders", "order"))
    async def fail(event: Event, work: Work) -> None:
        raise ValueError("a bad deploy")

    @orders.on("OrderPaid", documents=("payments", "payment"))
    async def pay(event: Event, work: Work) -> None: ...

    trial = Trial(orders)
    for number in range(5):
        await trial.put("orders", {"_id": f"new-{number}"})
        await trial.put("payments", {"_id": str(number)})
    async with trial.running():
        for number in range(3):
            await trial.put("orders", {"_id": str(number)})
            await trial.publish("OrderPlaced", {"order": str(number)})
        await until(trial, lambda: bool(trial.facts.of(FloodChanged)))
        await trial.clock.wait(timedelta(hours=1))
        swept = {each.collection: each for each in (await trial.sweep()).collections}
        assert (swept["payments"].requeued, swept["payments"].skipped) == (5, {})
        assert swept["orders"].requeued == 1, "a probe"
        assert Skip.DOWN in swept["orders"].skipped
        await trial.clock.wait(timedelta(minutes=2))
    assert {each["status"] for each in await trial.documents("payments")} == {"processed"}
