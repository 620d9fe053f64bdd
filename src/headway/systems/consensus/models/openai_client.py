"""Asks a service that speaks as OpenAI's does, with a key that no error tells."""

import contextlib
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

import httpx
import msgspec

from headway.clock import CLOCK, Clock
from headway.settings import hidden, shown_url
from headway.systems.consensus.failures import ModelAnswerError

T = TypeVar("T")
_SHOWN = 200


class OpenAIClient:
    """Asks `POST {url}/{path}`. Threads may share it; it connects with the first question.

    An answer of 429 or 503 is raised as `httpx.HTTPStatusError` with its headers, so that the pause
    that the service asks for is kept. No error has the key in it.

    Args:
        url: Base address of the service.
        path: What is asked there.
        api_key: Sent as a bearer token, where there is one.
        timeout: Seconds that a whole answer may take.
        largest: Bytes that an answer may have.
        transport: In place of the network.
        clock: By which the seconds are counted.
    """

    def __init__(
        self,
        url: str,
        path: str,
        *,
        api_key: str,
        timeout: float,
        largest: int,
        transport: httpx.BaseTransport | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._url = f"{url.rstrip('/')}/{path}"
        self._key = api_key
        self._timeout = timeout
        self._largest = largest
        self._transport = transport
        self._clock = clock
        self._opening = threading.Lock()
        self._client: httpx.Client | None = None

    @property
    def where(self) -> str:
        """The address, fit to be shown."""
        return shown_url(self._url)

    def ask(self, question: dict[str, Any], kind: type[T], *, called: str) -> T:
        """Give the answer as this type; what is none is told by what was wanted."""
        deadline = self._clock.now() + timedelta(seconds=self._timeout)
        with self._connected().stream("POST", self._url, json=question) as response:
            parts = self._parts(response, deadline)
            if not response.is_success:
                raise self._refusal(response, parts)
            body = b"".join(parts)
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise ModelAnswerError(
                f"{self.where} answered something that is no {called}: {error}"
            ) from None

    def _parts(self, response: httpx.Response, deadline: datetime) -> Iterator[bytes]:
        """Read an answer, no more and no longer than one can be: it may come without an end."""
        coding = response.headers.get("Content-Encoding", "identity")
        if coding != "identity":  # a little of it may unpack to more than there is memory
            raise ModelAnswerError(f"{self.where} answered in {coding[:40]!r}, unasked")
        size = 0
        for part in response.iter_bytes():
            size += len(part)
            if size > self._largest:
                raise ModelAnswerError(f"{self.where} answered more than {self._largest:,} bytes")
            # The client's own timeout begins anew with each byte.
            if self._clock.now() > deadline:
                raise httpx.ReadTimeout(
                    f"{self.where} had not answered in full after {self._timeout:.0f} s",
                    request=response.request,
                )
            yield part

    def _refusal(self, response: httpx.Response, parts: Iterator[bytes]) -> httpx.HTTPStatusError:
        body = bytearray()
        # That it refuses is known, whatever becomes of its reasons.
        with contextlib.suppress(ModelAnswerError, httpx.TransportError):
            for part in parts:
                body += part
                if len(body) > _SHOWN * 10:
                    break
        said = " ".join(body[: _SHOWN * 10].decode(errors="replace").split())
        if self._key:  # some services say it back to whoever has the wrong one
            said = said.replace(self._key, "***")
        return httpx.HTTPStatusError(
            f"{self.where} answered {response.status_code} {response.reason_phrase}: "
            f"{hidden(said)[:_SHOWN]}",
            request=response.request,
            response=response,
        )

    def _connected(self) -> httpx.Client:
        with self._opening:
            if self._client is None:
                headers = {"Accept-Encoding": "identity"}
                if self._key:
                    headers["Authorization"] = f"Bearer {self._key}"
                self._client = httpx.Client(
                    headers=headers, timeout=self._timeout, transport=self._transport
                )
            return self._client
