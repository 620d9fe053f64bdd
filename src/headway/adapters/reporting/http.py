"""Report errors to the page of errors, over HTTP."""

import logging
import traceback
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec

from headway.core.errors import ConfigurationError
from headway.core.failure import words
from headway.core.secrets import hidden
from headway.ports.clock import Clock

URL = "http://localhost:8081/api/errors"
_SECONDS = 5
_LONGEST_TRACE = 100_000
_PAUSE = timedelta(minutes=1)


class HttpReporter:
    """Posts each report, one after another. If nobody takes them, it pauses for a minute.

    The work never waits for this: it runs in a thread of its own. What cannot be sent is dropped,
    for the log and the failed queue know of the error too.
    """

    def __init__(self, clock: Clock, url: str = URL) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigurationError(
                f"ERROR_REPORTER_URL={hidden(url)!r} is not accepted: "
                "use http://HOST:PORT/api/errors"
            )
        self._url = url
        self._clock = clock
        self._silent_until: datetime | None = None
        self.unsent = 0
        """Reports that nobody took."""

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
        if self._silent_until is not None and self._clock.now() < self._silent_until:
            self.unsent += 1
            return
        failure = _post(self._url, _body(error, context))
        if failure is not None:
            self._pause(failure)

    def _pause(self, failure: Exception) -> None:
        self.unsent += 1
        self._silent_until = self._clock.now() + _PAUSE
        if self.unsent == 1:
            logging.getLogger("headway").info(
                "Nobody takes reports of errors at %s (%s); start headway ui, or set "
                "ERROR_REPORTER_TYPE=noop",
                hidden(self._url),
                words(failure),
            )


def _post(url: str, body: bytes) -> Exception | None:
    # Loaded with the first error: a worker that has none stays two megabytes smaller.
    import http.client  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 (the scheme was checked)
    try:
        urllib.request.urlopen(request, timeout=_SECONDS).close()  # noqa: S310 (the same)
    except (OSError, http.client.HTTPException) as failure:
        return failure
    return None


def _body(error: BaseException, context: Mapping[str, Any]) -> bytes:
    trace = "".join(traceback.format_exception(error))
    said = {
        "service": str(context.get("service") or "unknown"),
        "level": "error",
        "message": hidden(words(error)) or type(error).__name__,
        "error_type": type(error).__name__[:200],
        "stack_trace": hidden(trace[-_LONGEST_TRACE:]),
        "context": {str(name): value for name, value in context.items() if name != "service"},
    }
    return msgspec.json.encode(said, enc_hook=str)
