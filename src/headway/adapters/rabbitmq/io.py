"""pika's loop on a thread of its own.

A handler that blocks the event loop would otherwise keep heartbeats from being sent, and the broker
would take the worker for dead.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from pika.adapters.select_connection import IOLoop

from headway.ports import fork

_LOG = logging.getLogger("headway")


def descriptors_of(loop: IOLoop) -> Iterator[int]:
    """Give what pika's loop has open: its connections, and what wakes it."""
    poller = loop._poller  # noqa: SLF001 (pika shows no other way)
    yield from list(poller._fd_handlers or ())  # noqa: SLF001 (None: it is closed)
    for each in (poller._w_interrupt, getattr(poller, "_poll", None)):  # noqa: SLF001
        if each is not None and hasattr(each, "fileno"):
            yield each.fileno()


class IoThread:
    """Runs callbacks one after another, and the connections that were made on its loop."""

    def __init__(self) -> None:
        self.loop = IOLoop()
        self._thread: threading.Thread | None = None
        self._stopping = False
        fork.own(self)

    def in_child(self) -> None:
        # Or the broker would not hear that the parent has died.
        fork.close_in_child(descriptors_of(self.loop))

    def start(self) -> None:
        if self._thread is None:
            # A daemon: a process that forgot to close can still end.
            self._thread = threading.Thread(target=self._run, name="headway-rabbitmq", daemon=True)
            self._thread.start()

    def call(self, callback: Callable[[], Any]) -> None:
        """Have something run on the thread; from any thread, in the order of the calls."""
        if not self._stopping:
            self.loop.add_callback_threadsafe(callback)

    def later(self, seconds: float, callback: Callable[[], Any]) -> object:
        """Have something run after a while; only on the thread itself."""
        return self.loop.call_later(seconds, callback)

    def stop(self) -> None:
        """End the thread; only for connections that are closed."""
        if self._thread is None or self._stopping:
            return
        self.call(self.loop.stop)
        self._stopping = True
        self._thread.join()
        self.loop.close()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.loop.start()
            except Exception:  # noqa: BLE001 (see below)
                # One callback failed. What waits for it hears of it when its connection is lost;
                # without the thread nobody would ever hear anything.
                _LOG.critical("Headway itself failed", exc_info=True)
            else:
                return
