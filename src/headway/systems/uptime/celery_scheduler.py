"""Have keys looked at later by a task of Celery."""

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from headway.clock import Clock

_PAUSE = timedelta(seconds=5)
_AT_MOST = timedelta(seconds=3)
"""So long a broker is waited for."""
_THREADS = 2
"""Daemons of its own: a broker that hangs must block neither the threads that everything else in a
process uses nor the end of the process, which joins the threads of an executor."""

_Sends = SimpleQueue[tuple[Future[None], Callable[[], None]] | None]


class CeleryScheduler:
    """Sends a task with the key, to be run after a delay. The broker may be Redis or RabbitMQ.

    A broker that is away is not tried again at once: the index of due keys has the key already, and
    to find out takes seconds. For a while all others are told without asking.
    """

    def __init__(self, task: Any, clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._ask_again = clock.now()
        self._error: Exception | None = None
        self._sends: _Sends = SimpleQueue()
        self._threads: list[threading.Thread] = []
        weakref.finalize(self, _end, self._sends).atexit = False

    async def schedule(self, key: str, delay: timedelta) -> None:
        self._refuse_while_away()
        self._start_threads()
        sending: Future[None] = Future()
        self._sends.put((sending, lambda: self._send(key, delay.total_seconds())))
        try:
            await self._sent(asyncio.wrap_future(sending))
        except Exception as error:  # whatever the client of a broker raises; it goes on
            if error is not self._error:
                self._error, self._ask_again = error, self._clock.now() + _PAUSE
            raise
        self._error = None

    def _start_threads(self) -> None:
        """Start them with the first send, so that a process may fork before it."""
        while len(self._threads) < _THREADS:
            thread = threading.Thread(
                target=_work, args=(self._sends,), name="headway-celery", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    async def _sent(self, sending: asyncio.Future[None]) -> None:
        limit = asyncio.create_task(self._clock.wait(_AT_MOST))
        try:
            await asyncio.wait({sending, limit}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
            is_sent = sending.done()
            sending.cancel()  # so that no thread begins with it any more
        if not is_sent:
            seconds = _AT_MOST.total_seconds()
            raise TimeoutError(f"the broker of Celery gave no answer within {seconds:g} s")
        sending.result()

    def _send(self, key: str, seconds: float) -> None:
        self._refuse_while_away()  # it may have waited for a thread while others found out
        self._task.apply_async((key,), countdown=seconds, retry=False)

    def _refuse_while_away(self) -> None:
        if self._error is not None and self._clock.now() < self._ask_again:
            raise self._error


def _work(sends: _Sends) -> None:
    while (send := sends.get()) is not None:
        sending, call = send
        if sending.set_running_or_notify_cancel():
            try:
                sending.set_result(call())
            except Exception as error:  # noqa: BLE001 (the sender gets it)
                sending.set_exception(error)
        # Until the next send these would keep the scheduler alive, and so this thread.
        del send, sending, call


def _end(sends: _Sends) -> None:
    for _ in range(_THREADS):
        sends.put(None)
