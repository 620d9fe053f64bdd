"""Report errors beside the work: it neither waits for a report nor breaks by one."""

import logging
import queue
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from headway.ports.reporter import ErrorReporter

_ROOM = 1_000
_MARK = "_headway_reported"

_Report = tuple[BaseException, dict[str, Any]]


class Reporting:
    """Hands reports to a reporter, one after another, in a thread of their own.

    An exception that was reported before is not reported again, whoever meets it on its way up.
    When reports come faster than they can be sent, those that find no room are dropped and counted.
    """

    def __init__(self, reporter: ErrorReporter, *, room: int = _ROOM) -> None:
        self.dropped = 0
        """Reports that found no room."""
        self.failed = 0
        """Reports that the reporter raised on."""
        self._reporter = reporter
        self._waiting: queue.Queue[_Report | threading.Event] = queue.Queue(room)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
        try:
            with self._lock:
                if self._is_known(error):
                    return
                self._waiting.put_nowait((error, dict(context)))
                self._remember(error)
                self._start()
        except queue.Full:
            self._drop()
        except Exception:  # a report must not become a failure of the work
            logging.getLogger("headway").exception("an error could not be reported")

    def flush(self, patience: timedelta) -> bool:
        """Wait until all that was reported so far is sent; False: it took longer."""
        sent, seconds = threading.Event(), patience.total_seconds()
        with self._lock:
            if self._thread is None:
                return True
            self._start()
        try:
            self._waiting.put(sent, timeout=seconds)
        except queue.Full:
            return False
        return sent.wait(seconds)

    def _is_known(self, error: BaseException) -> bool:
        return id(self) in getattr(error, "__dict__", {}).get(_MARK, ())

    def _remember(self, error: BaseException) -> None:
        # Kept on the exception itself: Python's own cannot be referred to weakly, and holding on to
        # one would keep every frame of its traceback alive.
        known = error.__dict__.get(_MARK, ())
        error.__dict__[_MARK] = (*known, id(self))

    def _drop(self) -> None:
        with self._lock:
            self.dropped += 1
            first = self.dropped == 1
        if first:
            logging.getLogger("headway").warning(
                "errors come faster than they can be reported: some are dropped, and counted"
            )

    def _start(self) -> None:
        # A thread does not live on in a forked process, so each looks for its own.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._send, name="headway-reports", daemon=True)
            self._thread.start()

    def _send(self) -> None:
        while True:
            waiting = self._waiting.get()
            if isinstance(waiting, threading.Event):
                waiting.set()
                continue
            try:
                self._reporter.report(*waiting)
            except Exception:
                self.failed += 1
                logging.getLogger("headway").exception("reporter %r failed", self._reporter)
            del waiting  # or the exception and its frames would stay until the next one comes
