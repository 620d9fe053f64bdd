"""Named dead letters: exactly those are changed, whatever else begins with the same characters."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headway import ConfigurationError
from headway.clock import SystemChance, SystemClock
from headway.operations import FailedQueues
from headway.testing.conformance.examples import ORDERS, QUEUES, letters_for
from headway.testing.engines import memory_engine, sqlite_engine
from headway.testing.ports import Engine
from tests.engines.rabbitmq.engine import RabbitEngineHarness

CLOCK, CHANCE = SystemClock(), SystemChance()
FAILED = ORDERS.failed
THERE = ["70a1", "71b2", "7", "7c3d", "80aa"]


@dataclass(frozen=True)
class Bench:
    engine: Engine
    queues: FailedQueues

    async def left(self) -> list[str]:
        return [letter.letter_id for letter in await self.engine.letters.read(FAILED, 100)]


@pytest.fixture(params=["memory", "sqlite", "rabbitmq"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """Give five dead letters, four of which have ids that begin with a 7."""
    if request.param == "rabbitmq":
        request.getfixturevalue("coarse_delays")
        harness = RabbitEngineHarness(request.getfixturevalue("rabbitmq_vhost"))
        engine = await harness.open_engine()
    elif request.param == "sqlite":
        engine = sqlite_engine(tmp_path / "headway.db", CLOCK, CHANCE)
    else:
        engine = memory_engine(CLOCK, CHANCE)
    await engine.open(QUEUES)
    names = [f"operation-{number}" for number in range(len(THERE))]
    letters = [
        replace(letter, letter_id=one, error_type="KeyError" if one == "80aa" else "ValueError")
        for one, letter in zip(THERE, letters_for(names, CLOCK.now()), strict=True)
    ]
    await engine.letters.write(FAILED, letters)
    yield Bench(engine, FailedQueues(engine, CLOCK, CHANCE))
    await engine.close()


async def test_purge_removes_the_named_dead_letter_and_no_other(bench: Bench) -> None:
    report = await bench.queues.purge(FAILED, ids=["7"])
    assert (report.done, list(report.chosen), list(report.missing)) == (1, ["7"], [])
    assert await bench.left() == ["70a1", "71b2", "7c3d", "80aa"]


async def test_exactly_the_named_ones_are_chosen_and_what_is_missing_is_named(
    bench: Bench,
) -> None:
    report = await bench.queues.purge(FAILED, ids=["70", "7c3d"])
    assert (report.done, list(report.missing)) == (1, ["70"])
    found = [letter.letter_id async for letter in bench.queues.export(FAILED, ids=["7", "80aa"])]
    assert found == ["7", "80aa"]
    (seen,) = await bench.queues.inspect(FAILED, letter_id="7")
    assert seen.letter_id == "7"
    assert list(await bench.queues.inspect(FAILED, letter_id="71")) == []
    report = await bench.queues.purge(FAILED, ids=["7", "80aa"], error_type="KeyError")
    assert (list(report.chosen), list(report.missing)) == (["80aa"], [])
    assert [each.letter_id for each in report.unselected] == ["7"]
    report = await bench.queues.requeue(FAILED, ids=["7", "70a1"])
    assert (report.done, list(report.missing)) == (2, [])
    assert await bench.left() == ["71b2"]


async def test_limit_counts_matches(bench: Bench) -> None:
    report = await bench.queues.purge(FAILED, ids=["80aa", "7", "nosuch"], limit=1)
    assert (list(report.chosen), list(report.missing)) == (["7"], ["nosuch"])
    found = bench.queues.export(FAILED, ids=["80aa", "71b2", "70a1"], limit=2)
    assert [letter.letter_id async for letter in found] == ["70a1", "71b2"]


Call = Callable[[FailedQueues, Any], Awaitable[object]]


async def _exported(queues: FailedQueues, ids: Any) -> Sequence[object]:
    return [letter async for letter in queues.export(FAILED, ids=ids)]


CALLS: dict[str, Call] = {
    "purge": lambda queues, ids: queues.purge(FAILED, ids=ids),
    "requeue": lambda queues, ids: queues.requeue(FAILED, ids=ids),
    "export": _exported,
}


async def test_empty_ids_are_refused_and_no_ids_mean_all(bench: Bench) -> None:
    for call in CALLS.values():
        for ids in ([], [""], ["7", " "], "7"):
            with pytest.raises(ConfigurationError, match="ids="):
                await call(bench.queues, ids)
    assert await bench.left() == THERE
    assert (await bench.queues.purge(FAILED, ids=None)).done == len(THERE)


async def test_a_typed_prefix_is_completed_only_if_one_dead_letter_begins_with_it(
    bench: Bench,
) -> None:
    assert await bench.queues.complete(FAILED, ["71b2", "7", "nosuch"]) == ["71b2", "7", "nosuch"]
    more = letters_for(["operation-x", "operation-y"], CLOCK.now())
    names = ["abcd1111", "abcd2222"]
    await bench.engine.letters.write(
        FAILED, [replace(each, letter_id=one) for one, each in zip(names, more, strict=True)]
    )
    assert await bench.queues.complete(FAILED, ["abcd1"]) == ["abcd1111"]
    with pytest.raises(ConfigurationError, match="abcd1111, abcd2222"):
        await bench.queues.complete(FAILED, ["71b2", "abcd"])
    with pytest.raises(ConfigurationError, match="'71b'"):
        await bench.queues.complete(FAILED, ["71b"])
