"""What every store does with numbers that only rise."""

import asyncio

from headway.testing.conformance.examples import opened
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.stuck import sweeping

NAMES = (
    'documents_requeued_total{collection="it\'s a.b"}', "a.b", "$a", "a b", "käse ✓", "100%_", "_id"
)  # fmt: skip


class TotalsConformance:
    """What is counted stays counted, whoever counts."""

    async def test_a_total_adds_up(self, harness: EngineHarness) -> None:
        totals = sweeping(await opened(harness)).totals
        assert dict(await totals.add("sweep", {"runs": 1})) == {"runs": 1}
        assert dict(await totals.add("sweep", {"runs": 2, "errors": 5})) == {"runs": 3, "errors": 5}
        assert dict(await totals.add("sweep", {})) == {"runs": 3, "errors": 5}

    async def test_a_total_that_was_named_is_there_from_the_start(
        self, harness: EngineHarness
    ) -> None:
        totals = sweeping(await opened(harness)).totals
        assert dict(await totals.add("sweep", {"runs": 0})) == {"runs": 0}
        assert dict(await totals.add("sweep", {"runs": 0, "errors": 0})) == {"runs": 0, "errors": 0}

    async def test_groups_know_nothing_of_one_another(self, harness: EngineHarness) -> None:
        totals = sweeping(await opened(harness)).totals
        for group in ("a", "A", "it's", "käse ✓", "$a.b"):
            assert dict(await totals.add(group, {"runs": 1})) == {"runs": 1}
        assert dict(await totals.add("a", {})) == {"runs": 1}
        assert dict(await totals.add("never seen", {})) == {}

    async def test_others_find_what_was_added(self, harness: EngineHarness) -> None:
        first, second = [sweeping(await opened(harness)).totals for _ in range(2)]
        await first.add("sweep", {"runs": 1})
        assert dict(await second.add("sweep", {"runs": 1})) == {"runs": 2}

    async def test_a_name_may_hold_anything(self, harness: EngineHarness) -> None:
        totals = sweeping(await opened(harness)).totals
        for times in (1, 2):
            answer = await totals.add("sweep", dict.fromkeys(NAMES, 1))
            assert dict(answer) == dict.fromkeys(NAMES, times)

    async def test_parts_of_numbers_are_added_too(self, harness: EngineHarness) -> None:
        totals = sweeping(await opened(harness)).totals
        for _ in range(10):
            answer = await totals.add("sweep", {"seconds": 0.1})
        assert abs(answer["seconds"] - 1) < 1e-9
        answer = await totals.add("sweep", {"seconds": 1e-3, "bytes": 2**53})
        assert abs(answer["seconds"] - 1.001) < 1e-9
        assert answer["bytes"] == 2**53

    async def test_all_that_many_add_at_once_is_in_it(self, harness: EngineHarness) -> None:
        engines = [await opened(harness) for _ in range(2)]
        every = [sweeping(engine).totals for engine in engines for _ in range(20)]
        answers = await asyncio.gather(
            *(each.add("sweep", {"runs": 1, f"worker {n}": 2.5}) for n, each in enumerate(every))
        )
        assert sorted(answer["runs"] for answer in answers) == list(range(1, 41))
        whole = await every[0].add("sweep", {})
        assert whole["runs"] == 40
        assert sum(whole.values()) == 40 + 40 * 2.5
