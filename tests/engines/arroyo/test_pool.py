"""A pool that lost a process says so, and does not keep those waiting who close it."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from headway.systems.uptime.arroyo.pool import ProcessLostError, WatchedPool
from headway.testing.clock import VirtualClock
from headway.testing.servers import wait_until

pytestmark = pytest.mark.timeout(60)

SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def pool(clock: VirtualClock) -> Iterator[WatchedPool]:
    pool = WatchedPool(1, None, clock)
    yield pool
    pool.close()


def test_a_pool_whose_process_was_killed_is_found_out_and_can_be_closed(
    pool: WatchedPool, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    pid = pool.apply_async(os.getpid).get(30)
    pool.check()
    time.sleep(0.2)  # by now it waits for the next batch, with the lock of the queue in its hands
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: bool(pool.lost()), timedelta(seconds=20))
    pool.check()  # it has looked in this second
    clock.advance(SECOND)
    with pytest.raises(ProcessLostError, match=str(pid)):
        pool.check()
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 20
    assert f"{pid}" in caplog.text
    assert not [each for each in multiprocessing.active_children() if "Pool" in each.name]


def test_a_pool_that_was_closed_can_begin_again(pool: WatchedPool, clock: VirtualClock) -> None:
    first = pool.apply_async(os.getpid).get(30)
    pool.maybe_create_pool()
    assert pool.apply_async(os.getpid).get(30) == first
    pool.close()
    pool.maybe_create_pool()
    assert pool.apply_async(os.getpid).get(30) != first
    clock.advance(SECOND)
    pool.check()
