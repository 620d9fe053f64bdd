"""What every store does with leases by name."""

import asyncio
from datetime import timedelta

from headway.testing.conformance.examples import opened
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.settling import STEPS
from headway.testing.conformance.stuck import sweeping

LONG = timedelta(hours=1)


class LeasesConformance:
    """Of those who want to do the same, one may."""

    async def test_a_lease_has_one_holder(self, harness: EngineHarness) -> None:
        first = sweeping(await opened(harness)).leases
        second = sweeping(await opened(harness)).leases
        assert await first.hold("sweeper", "ours", LONG)
        assert not await second.hold("sweeper", "theirs", LONG)
        assert await second.hold("another", "theirs", LONG)
        assert await second.hold("sweeper", "ours", LONG)  # the token says whose it is
        assert sorted(await second.held("")) == ["another", "sweeper"]

    async def test_a_lease_ends(self, harness: EngineHarness) -> None:
        leases = sweeping(await opened(harness)).leases
        assert await leases.hold("sweeper", "ours", 2 * harness.moment)
        await harness.pass_time(3 * harness.moment)
        assert list(await leases.held("sweeper")) == []
        assert await leases.hold("sweeper", "theirs", LONG)
        assert not await leases.hold("sweeper", "ours", LONG)

    async def test_another_holder_gets_a_lease_when_it_has_ended_and_not_before(
        self, harness: EngineHarness
    ) -> None:
        first, second = [sweeping(await opened(harness)).leases for _ in range(2)]
        lease, began = 10 * harness.moment, harness.clock.now()
        assert await first.hold("sweeper", "ours", lease)
        assert not await second.hold("sweeper", "theirs", LONG)
        await harness.pass_time(0.6 * lease)
        is_taken = await second.hold("sweeper", "theirs", LONG)
        assert not is_taken or harness.clock.now() - began >= lease  # on a machine that was slow

    async def test_its_holder_prolongs_it(self, harness: EngineHarness) -> None:
        leases = sweeping(await opened(harness)).leases
        assert await leases.hold("sweeper", "ours", 2 * harness.moment)
        assert await leases.hold("sweeper", "ours", LONG)
        await harness.pass_time(3 * harness.moment)
        assert not await leases.hold("sweeper", "theirs", LONG)
        assert list(await leases.held("sweeper")) == ["sweeper"]

    async def test_its_holder_may_take_it_again_when_it_ended(self, harness: EngineHarness) -> None:
        leases = sweeping(await opened(harness)).leases
        assert await leases.hold("sweeper", "ours", 2 * harness.moment)
        await harness.pass_time(3 * harness.moment)
        assert await leases.hold("sweeper", "ours", LONG)
        assert not await leases.hold("sweeper", "theirs", LONG)

    async def test_only_its_holder_lets_go_of_it(self, harness: EngineHarness) -> None:
        leases = sweeping(await opened(harness)).leases
        await leases.let_go("sweeper", "ours")
        assert await leases.hold("sweeper", "ours", LONG)
        await leases.let_go("sweeper", "theirs")
        await leases.let_go("another", "ours")
        assert not await leases.hold("sweeper", "theirs", LONG)
        await leases.let_go("sweeper", "ours")
        assert list(await leases.held("")) == []
        assert await leases.hold("sweeper", "theirs", LONG)

    async def test_of_many_who_try_at_once_one_wins(self, harness: EngineHarness) -> None:
        engines = [await opened(harness) for _ in range(2)]
        every = [sweeping(engine).leases for engine in engines for _ in range(10)]
        assert await every[0].hold("ended", "somebody", harness.moment / 10)
        await harness.pass_time(harness.moment)
        for name in ("new", "ended"):
            answers = await asyncio.gather(
                *(each.hold(name, f"token {n}", LONG) for n, each in enumerate(every))
            )
            assert sum(answers) == 1
            winner = answers.index(True)
            assert await every[0].hold(name, f"token {winner}", LONG)

    async def test_setting_the_clock_ends_no_lease(self, harness: EngineHarness) -> None:
        before = [sweeping(await opened(harness)).leases for _ in range(2)]
        for number, step in enumerate(STEPS):
            name = f"sweeper {number}"
            assert await before[0].hold(name, "ours", 10 * harness.moment)
            assert not await before[1].hold(name, "theirs", LONG)
            await harness.set_clock(step)
            after = sweeping(await opened(harness)).leases
            for another in (before[1], after):
                assert not await another.hold(name, "theirs", LONG)
            assert await before[0].hold(name, "ours", LONG)
            for another in (before[1], after):
                assert not await another.hold(name, "theirs", LONG)
                assert name in await another.held("sweeper")

    async def test_setting_the_clock_prolongs_no_lease(self, harness: EngineHarness) -> None:
        before = [sweeping(await opened(harness)).leases for _ in range(2)]
        for number, step in enumerate(STEPS):
            name = f"sweeper {number}"
            assert await before[0].hold(name, "ours", 5 * harness.moment)
            await harness.set_clock(step)
            after = sweeping(await opened(harness)).leases
            for another in (before[1], after):
                assert not await another.hold(name, "theirs", LONG)
            await harness.pass_time(7 * harness.moment)
            assert name not in await after.held("sweeper")
            asked = [
                await each.hold(name, f"of {n}", LONG) for n, each in enumerate((after, *before))
            ]
            assert asked == [True, False, False]

    async def test_leases_are_named_by_how_they_begin(self, harness: EngineHarness) -> None:
        leases = sweeping(await opened(harness)).leases
        names = (
            "100%", "100 per cent", "a_b", "axb", "a\\b", "a*b", "a?b", "a[b]", "a.b", "^a", "$a",
            "it's", 'quo"ted', "käse ✓ 1", "kase", "Sweep 1", "sweep 1", "sweep 2", "x" * 150,
        )  # fmt: skip
        for name in names:
            assert await leases.hold(name, "t", LONG)
        for length in (1, 2, 4, 150):
            for prefix in {name[:length] for name in names}:
                expected = sorted(name for name in names if name.startswith(prefix))
                assert sorted(await leases.held(prefix)) == expected
        assert sorted(await leases.held("")) == sorted(names)
        assert list(await leases.held("nobody's")) == []
