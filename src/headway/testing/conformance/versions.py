"""What every bus says of the versions of a service that take from its queues."""

from datetime import timedelta

from headway.testing.conformance.examples import MAILS, ORDERS, opened
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.settling import STEPS

LONG = timedelta(minutes=5)
SERVICE = "shop"


class VersionsConformance:
    """Alive, or seen alive within the grace; by queue."""

    async def test_versions_that_take_from_a_queue_are_named(self, harness: EngineHarness) -> None:
        first, second, other = [await opened(harness) for _ in range(3)]
        assert not await first.bus.live_versions(ORDERS.name)
        await first.bus.announce(SERVICE, "", [ORDERS.name, MAILS.name], LONG)
        await second.bus.announce(SERVICE, "a1b2/ä 注文", [ORDERS.name], LONG)
        await second.bus.announce(SERVICE, "a1b2/ä 注文", [ORDERS.name], LONG)
        for engine in (first, second, other):
            assert set(await engine.bus.live_versions(ORDERS.name)) == {"", "a1b2/ä 注文"}
            assert set(await engine.bus.live_versions(MAILS.name)) == {""}
            assert not await engine.bus.live_versions("no.such.queue")

    async def test_a_bus_that_was_only_opened_is_no_version(self, harness: EngineHarness) -> None:
        engine, other = await opened(harness), await opened(harness)
        assert not await other.bus.live_versions(ORDERS.name)
        await engine.bus.announce(SERVICE, "1", [ORDERS.name], LONG)
        assert set(await other.bus.live_versions(ORDERS.name)) == {"1"}

    async def test_a_version_stays_alive_for_its_grace_after_it_stopped_or_died(
        self, harness: EngineHarness
    ) -> None:
        stopped, killed, long, last = [await opened(harness) for _ in range(4)]
        for version, engine in (("stopped", stopped), ("killed", killed), ("last", last)):
            await engine.bus.announce(SERVICE, version, [ORDERS.name], self.grace(harness))
        await long.bus.announce(SERVICE, "long", [ORDERS.name], LONG)
        await stopped.bus.close()
        await long.bus.close()
        await harness.kill(killed)
        after = await opened(harness)
        every = {"stopped", "killed", "long", "last"}
        assert set(await after.bus.live_versions(ORDERS.name)) == every
        deadline = harness.clock.now() + 4 * self.grace(harness) + timedelta(seconds=10)
        while set(await after.bus.live_versions(ORDERS.name)) != {"long", "last"}:
            assert harness.clock.now() < deadline
            await harness.pass_time(harness.moment)

    async def test_a_version_that_comes_back_within_its_grace_is_alive_again(
        self, harness: EngineHarness
    ) -> None:
        before = await opened(harness)
        grace = self.grace(harness)
        await before.bus.announce(SERVICE, "1", [ORDERS.name], grace)
        await harness.kill(before)
        after, other = await opened(harness), await opened(harness)
        await after.bus.announce(SERVICE, "1", [ORDERS.name], grace)
        await harness.pass_time(2 * grace)
        assert set(await other.bus.live_versions(ORDERS.name)) == {"1"}

    async def test_setting_the_clock_ends_no_grace(self, harness: EngineHarness) -> None:
        gone = await opened(harness)
        await gone.bus.announce(SERVICE, "1", [ORDERS.name], LONG)
        await gone.bus.close()
        for step in STEPS:
            await harness.set_clock(step)
            after = await opened(harness)
            assert set(await after.bus.live_versions(ORDERS.name)) == {"1"}

    @staticmethod
    def grace(harness: EngineHarness) -> timedelta:
        """Give a grace that ends while a test runs, and that no slow machine misses."""
        return max(10 * harness.moment, timedelta(seconds=2))
