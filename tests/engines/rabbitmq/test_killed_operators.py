"""Operators that are killed at their work: letters are lost to nobody, and take effect once."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.adapters.rabbitmq import headers
from headway.operations import Letter
from headway.runtime.failed_reading import walk
from headway.testing.conformance.examples import ORDERS, QUEUES, letters_for
from headway.testing.engines import RabbitParts
from tests.engines.rabbitmq.by_hand import contents
from tests.engines.rabbitmq.engine import RabbitEngineHarness

FAILED = ORDERS.failed
FULL = pytest.param(10_000, marks=[pytest.mark.chaos, pytest.mark.timeout(900)])
ROOT = Path(__file__).parents[3]


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


async def kill_at_work(url: str, work: str, lines: int, ids: Sequence[str] = ()) -> int:
    """Run an operator and kill it after so many lines; say how many it has written."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engines.rabbitmq.operator", url, work),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n".join(ids).encode())
    process.stdin.close()
    written = 0
    while written < lines and await process.stdout.readline():
        written += 1
    if process.returncode is None:
        process.kill()
    await process.wait()
    return written


async def begun(harness: RabbitEngineHarness, size: int) -> tuple[RabbitParts, list[Letter]]:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    letters = letters_for([f"operation-{each}" for each in range(size)], harness.clock.now())
    await parts.letters.write(FAILED, letters)
    return parts, letters


async def left(parts: RabbitParts) -> dict[str, Letter]:
    found = [letter async for letter in walk(parts.letters, FAILED)]
    by_operation = {letter.operation: letter for letter in found}
    assert len(by_operation) == len(found)
    return by_operation


def moments(size: int) -> list[int]:
    """Say after how many lines to kill: at once, within and between pages, near the end."""
    return [1, 2, 60, 101, 102, 201, size // 4, size // 2, size * 3 // 4, size - 1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [FULL])
@pytest.mark.parametrize("work", ["read", "export"])
async def test_who_is_killed_while_reading_takes_nothing_along(
    harness: RabbitEngineHarness, work: str, size: int, record_property: Any
) -> None:
    parts, letters = await begun(harness, size)
    for lines in moments(size):
        await kill_at_work(harness.url, work, lines)
    found = await left(parts)
    assert found == {letter.operation: letter for letter in letters}
    record_property("shown", f"{size} letters, 10 kills while they were read: {len(found)} left")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [400, FULL])
async def test_who_is_killed_while_requeueing_loses_nothing_and_sends_one_generation(
    harness: RabbitEngineHarness, size: int, record_property: Any
) -> None:
    parts, letters = await begun(harness, size)
    kills = moments(size // 10) if size > 1_000 else [1, 2, 60, 101, 102]
    for lines in kills:
        await kill_at_work(harness.url, "requeue", lines)
    found = await left(parts)
    sent: defaultdict[str, list[str]] = defaultdict(list)
    for properties, _ in contents(harness.url, ORDERS.name):
        travel = headers.read(properties.headers, properties.message_id)
        sent[travel.operation].append(travel.generation)
    assert found.keys() | sent.keys() == {letter.operation for letter in letters}
    expected = {letter.operation: f"{letter.letter_id}.1" for letter in letters}
    assert all(set(each) == {expected[name]} for name, each in sent.items())
    assert all(found[each.operation] == each for each in letters if each.operation in found)
    both = len(found.keys() & sent.keys())
    assert len(sent) > 100
    record_property(
        "shown",
        f"{size} letters, {len(kills)} kills: {len(sent)} sent, {len(found)} left, {both} both, "
        "0 lost",
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [FULL])
async def test_who_is_killed_while_removing_removes_nothing_else(
    harness: RabbitEngineHarness, size: int, record_property: Any
) -> None:
    parts, letters = await begun(harness, size)
    half = size // 2
    for number in range(10):
        some = [each.letter_id for each in letters[number:half:10]]
        await kill_at_work(harness.url, "remove", 1 + number % 4, some)
    found = await left(parts)
    assert {each.operation for each in letters[half:]} <= found.keys()
    assert all(found[each.operation] == each for each in letters if each.operation in found)
    assert len(found) < size
    record_property("shown", f"{size} letters, {half} purged under 10 kills: {len(found)} left")


@pytest.mark.chaos
@pytest.mark.timeout(900)
async def test_ten_thousand_letters_are_read_in_seconds_and_in_little_memory(
    harness: RabbitEngineHarness, record_property: Any
) -> None:
    parts, letters = await begun(harness, 10_000)
    names = [letter.letter_id for letter in letters]
    del letters
    before, began = _resident(), harness.clock.now()
    most, read = before, []
    async for letter in walk(parts.letters, FAILED):
        read.append(letter.letter_id)
        if len(read) % 500 == 0:
            most = max(most, _resident())
    took = (harness.clock.now() - began).total_seconds()
    assert read == names
    assert most - before < 30
    record_property(
        "shown", f"10000 letters read in {took:.1f} s, with {most - before:.0f} MB more"
    )


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4_096 / 1_000_000
