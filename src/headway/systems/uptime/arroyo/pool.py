"""Arroyo's pool of processes, which is given up as soon as one of them is lost.

A process that is killed takes its batch with it; if it was about to take one, it takes the lock of
the pool's queue with it too. The standard library puts another process in its place and knows
nothing of that: the batch is never done, nobody gets another one, and whoever ends the pool waits
for the lock for ever. So a pool that lost a process is not used again, nor waited for.
"""

import logging
import multiprocessing
import threading
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.process import BaseProcess

from arroyo.processing.strategies.run_task_with_multiprocessing import MultiprocessingPool

from headway import HeadwayError
from headway.clock import Clock

_LOG = logging.getLogger("headway")
_CHECK_EVERY = timedelta(seconds=1)
_CLOSE_WITHIN = timedelta(seconds=5)
_CLOSE_WITHIN_IF_LOST = timedelta(seconds=1)
_KIND = "PoolWorker"
"""In the name of every process of a pool, those included that came for one that was lost."""


class ProcessLostError(HeadwayError):
    """A process of the pool is gone: what it was at has to be given again by the source."""


class WatchedPool(MultiprocessingPool):
    """A pool that tells when a process is lost, and that can always be closed."""

    def __init__(
        self, num_processes: int, initializer: Callable[[], None] | None, clock: Clock
    ) -> None:
        self._processes: list[BaseProcess] = []
        self._is_given_up = False
        self._clock = clock
        self._check_again = clock.now()
        super().__init__(num_processes, initializer)

    def maybe_create_pool(self) -> None:
        """Start the processes if there are none, or if one of them is lost."""
        if self.lost():
            self.close()
        if self._is_given_up:
            raise ProcessLostError("the pool of processes could not be ended: begin with another")
        if self._processes:
            return
        before = multiprocessing.active_children()
        super().maybe_create_pool()
        self._processes = [each for each in multiprocessing.active_children() if each not in before]

    def check(self) -> None:
        """Raise if a process is lost; asks for that once in a second."""
        now = self._clock.now()
        if now < self._check_again:
            return
        self._check_again = now + _CHECK_EVERY
        if lost := self.lost():
            raise ProcessLostError(
                f"process {_named(lost)} of the pool is lost: begin with another"
            )

    def lost(self) -> list[BaseProcess]:
        """Give the processes that ended, though nobody told them to."""
        return [each for each in self._processes if not each.is_alive()]

    def close(self) -> None:
        """End all processes. One that was lost keeps nobody waiting."""
        if self._is_given_up:
            return
        lost = self.lost()
        if lost:
            _LOG.error(
                "Process %s of the pool ended by itself (%s): killed, or out of memory? "
                "The source gives again what it was at",
                _named(lost),
                ", ".join(f"exit code {each.exitcode}" for each in lost),
            )
        self._processes = []
        within = (_CLOSE_WITHIN_IF_LOST if lost else _CLOSE_WITHIN).total_seconds()
        # In a thread: it may never come back.
        ending = threading.Thread(target=super().close, name="headway-pool-end", daemon=True)
        ending.start()
        ending.join(within)
        if not ending.is_alive():
            return
        self._is_given_up = True
        left = [each for each in multiprocessing.active_children() if _KIND in each.name]
        _LOG.warning(
            "The pool did not end within %g s; its processes (%s) are killed", within, _named(left)
        )
        for process in left:
            process.kill()
        for process in left:
            process.join()


def _named(processes: list[BaseProcess]) -> str:
    return ", ".join(str(each.pid) for each in processes) or "none"
