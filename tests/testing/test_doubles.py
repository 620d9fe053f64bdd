import asyncio
import pkgutil
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from headway.facts import Fact, GaveUp, Recovered
from headway.retrying import DEFAULT_CLASSIFIER, Failure, Reason
from headway.testing import conformance
from headway.testing.chance import Fixed, Seeded
from headway.testing.clock import VirtualClock
from headway.testing.facts import Recorder

START = datetime(2000, 1, 1, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def test_a_sleep_takes_no_time_and_moves_the_virtual_clock() -> None:
    clock = VirtualClock()
    clock.sleep(seconds(90))
    clock.sleep(seconds(0.5))
    assert clock.now() == START + seconds(90.5)
    assert clock.waits == [seconds(90), seconds(0.5)]
    clock.advance(seconds(5))  # time that passes in the work is no wait
    clock.sleep(seconds(-5))
    clock.advance(seconds(-5))
    for _ in range(2):  # one event loop after another
        asyncio.run(clock.wait(seconds(1)))
    assert clock.now() == START + seconds(97.5)


def test_the_virtual_clock_gives_utc_and_refuses_a_start_without_a_zone() -> None:
    start = datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert VirtualClock(start).now().isoformat() == "2024-05-01T10:00:00+00:00"
    with pytest.raises(ValueError, match=r"start=.* is not accepted: name its time zone"):
        VirtualClock(datetime(2024, 5, 1))  # noqa: DTZ001


def test_sleeps_of_several_threads_add_up() -> None:
    clock = VirtualClock()

    def sleep_often() -> None:
        for _ in range(500):
            clock.sleep(seconds(1))

    threads = [threading.Thread(target=sleep_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == START + seconds(2000)


async def test_waits_of_several_tasks_end_in_the_order_of_their_ends() -> None:
    clock = VirtualClock()
    ended: list[tuple[str, datetime]] = []

    async def wait(name: str, *delays: float) -> None:
        for delay in delays:
            await clock.wait(seconds(delay))
            ended.append((name, clock.now()))

    async def work() -> None:  # time stands still while another task has work left
        for _ in range(20):
            await asyncio.create_task(asyncio.sleep(0))
            assert clock.now() == START

    waits = (wait("slow", 10, 1), wait("quick", 1, 1, 5), wait("even", 2, 2))
    await asyncio.gather(*waits, work())

    assert [(name, (at - START).total_seconds()) for name, at in ended] == [
        ("quick", 1),
        ("even", 2),  # began to wait for that instant before "quick" did
        ("quick", 2),
        ("even", 4),
        ("quick", 7),
        ("slow", 10),
        ("slow", 11),
    ]


async def test_a_cancelled_wait_does_not_move_time() -> None:
    clock = VirtualClock()
    cancelled = asyncio.create_task(clock.wait(seconds(1)))
    await asyncio.sleep(0)
    cancelled.cancel()
    await clock.wait(seconds(0.5))
    await clock.wait(seconds(0.1))
    assert cancelled.cancelled()
    assert clock.now() == START + seconds(0.6)
    await asyncio.wait_for(clock.wait(seconds(2)), timeout=30)
    assert clock.now() == START + seconds(2.6)


def test_the_recorder_gives_facts_in_order_and_by_kind() -> None:
    error = ValueError("wrong")
    failure = Failure(
        attempt=1, at=START, error=error, diagnosis=DEFAULT_CLASSIFIER.classify(error)
    )
    gave_up = GaveUp(call="a", failure=failure, max_attempts=1, reason=Reason.NON_RETRYABLE)
    recovered = Recovered(call="b", attempts=2, elapsed=seconds(1))
    told: list[Fact] = [gave_up, recovered]
    recorder = Recorder()
    for fact in told:
        recorder.tell(fact)
    assert recorder.facts == told
    assert recorder.of(GaveUp) == [gave_up]
    assert recorder.of(Recovered) == [recovered]


def test_dice_show_what_they_were_told_or_repeat_themselves() -> None:
    fixed = Fixed(0.25)
    assert [fixed.draw(), fixed.draw()] == [0.25, 0.25]
    assert fixed.token() != fixed.token()
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"draw="):
            Fixed(wrong)
    one, same, other = Seeded(7), Seeded(7), Seeded(8)
    draws = [one.draw() for _ in range(50)]
    assert draws == [same.draw() for _ in range(50)]
    assert draws != [other.draw() for _ in range(50)]
    assert all(0 <= draw < 1 for draw in draws)
    assert one.token() == same.token() != one.token()


def test_a_failed_assertion_of_every_conformance_suite_shows_what_it_compared() -> None:
    found = list(pkgutil.walk_packages(conformance.__path__, f"{conformance.__name__}."))
    hook = next(each for each in sys.meta_path if isinstance(each, AssertionRewritingHook))
    plain = [
        module.name
        for module in found
        if hook.find_spec(module.name, list(conformance.__path__)) is None
    ]
    assert found
    assert not plain
