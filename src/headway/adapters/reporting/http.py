"""Report errors to the page of errors, over HTTP."""

import logging
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec

from headway.core.errors import ConfigurationError
from headway.core.failure import words
from headway.core.secrets import hidden, shown_url, without_secrets
from headway.core.traces import trace
from headway.ports.clock import Clock
from headway.ports.reporter import FINAL, OUTCOME, RECOVERED, RETRYING

URL = "http://localhost:8081/api/errors"
_SECONDS = 5
_LONGEST_TRACE = 100_000
_PAUSE = timedelta(minutes=1)
_REFUSED = (401, 403)
_LEVELS = {FINAL: "error", RETRYING: "warning", RECOVERED: "info"}


def checked_url(url: str) -> str:
    """Refuse an address to which nothing can be posted."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or the host has an odd bracket
        is_good = False
    if not is_good:
        raise ConfigurationError(
            f"ERROR_REPORTER_URL={shown_url(url)!r} is not accepted: "
            "use http://HOST:PORT/api/errors"
        )
    return url


class HttpReporter:
    """Posts each report, one after another. If sending fails, it pauses for a minute.

    The work never waits for this: it runs in a thread of its own. What cannot be sent is dropped:
    the log and the failed queue know of the error too.

    Many processes report to the same page. So each report says in its context where it comes from:
    `origin`, and the process.
    """

    def __init__(
        self,
        clock: Clock,
        url: str = URL,
        *,
        origin: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> None:
        self._url = checked_url(url)
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._origin = dict(origin or {})
        self._clock = clock
        self._silent_until: datetime | None = None
        self._failures: set[int | None] = set()
        """Kinds of failures that the log has: the status of a refusal, or None."""
        self.unsent = 0
        """Reports that could not be sent."""

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
        if self._silent_until is not None and self._clock.now() < self._silent_until:
            self.unsent += 1
            return
        failure = _post(self._url, self._body(error, context), self._headers)
        if failure is not None:
            self._pause(failure)

    def _body(self, error: BaseException, context: Mapping[str, Any]) -> bytes:
        # Asked for each time: a process that was forked since is another one.
        origin = {**self._origin, "pid": os.getpid()}
        told = {str(name): value for name, value in context.items() if name != "service"}
        outcome = str(told.get(OUTCOME))
        if outcome in _LEVELS:
            del told[OUTCOME]
        said = {
            "service": str(context.get("service") or "unknown"),
            "level": _LEVELS.get(outcome, "error"),
            "message": hidden(words(error)) or type(error).__name__,
            "error_type": type(error).__name__[:200],
            "stack_trace": trace(error)[-_LONGEST_TRACE:],
            "context": without_secrets({"origin": origin, **told}),
        }
        if outcome in _LEVELS:
            said["outcome"] = outcome
        return msgspec.json.encode(said, enc_hook=_plain)

    def _pause(self, failure: Exception) -> None:
        self.unsent += 1
        self._silent_until = self._clock.now() + _PAUSE
        status = getattr(failure, "code", None)
        if status not in self._failures:
            self._failures.add(status)
            logging.getLogger("headway").warning(
                "Could not send error reports to %s (%s). %s, or set ERROR_REPORTER_TYPE=noop.",
                shown_url(self._url),
                hidden(words(failure)),
                "Set HEADWAY_UI_TOKEN to the token of that page"
                if status in _REFUSED
                else "Start headway ui there",
            )


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> Exception | None:
    # Loaded with the first error: a worker that has none stays two megabytes smaller.
    import http.client  # noqa: PLC0415
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    request = urllib.request.Request(url, body, dict(headers))  # noqa: S310 (the scheme was checked)
    try:
        urllib.request.urlopen(request, timeout=_SECONDS).close()  # noqa: S310 (the same)
    except (OSError, http.client.HTTPException) as failure:
        if isinstance(failure, urllib.error.HTTPError):
            failure.close()  # it holds the connection on which the refusal came
        return failure
    return None


def _plain(value: Any) -> str:
    return hidden(str(value))
