"""Guard an HTTP application against pages of other sites, slow senders and strangers.

A browser sends requests to this application on behalf of any page that a person has open. So a
request must name a host that the application is known by (a page may point a name of its own at
this address), and a request that changes something must come from a page of the same host, as JSON.
"""

import asyncio
import base64
import binascii
import hmac
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_WITHIN = timedelta(seconds=60)
ANY = "*"
_LOCAL = frozenset({"localhost", "localhost.localdomain"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON = "application/json"


class _SlowBodyError(Exception):
    """The rest of the body did not come in time."""


class HttpGuard:
    """ASGI middleware. Answers refused requests itself, as JSON with `error` and `message`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        hosts_setting: str,
        token: str | None = None,
        body_within: timedelta = BODY_WITHIN,
    ) -> None:
        """Wrap an application.

        Args:
            app: What answers the requests that pass.
            hosts: Names that it is reached by, besides this machine's own; `*` is any. Addresses
                always pass: only a name can be pointed elsewhere.
            hosts_setting: The setting that extends `hosts`, for the message.
            token: What `Authorization` must carry: `Bearer TOKEN`, or Basic with the token as
                password, for which browsers ask.
            body_within: How long a client may take to send a body.
        """
        self._app = app
        self._hosts = _LOCAL | {socket.gethostname().lower()} | {each.lower() for each in hosts}
        self._hosts_setting = hosts_setting
        self._token = token
        self._body_seconds = body_within.total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, self._timely(receive), noting)
        except ClientDisconnect:  # it is gone: there is no one to answer, and nothing to log
            return
        except _SlowBodyError:
            if not started:
                why = f"the body did not come within {self._body_seconds:g} s"
                await _answer(send, HTTPStatus.REQUEST_TIMEOUT, why)

    def _refusal(self, method: str, headers: Mapping[str, str]) -> tuple[HTTPStatus, str] | None:
        host = headers.get("host", "")
        if not self._is_known(host):
            why = f"unknown host {host[:80]!r}. Add it to {self._hosts_setting}."
            return HTTPStatus.MISDIRECTED_REQUEST, why
        if self._token is not None and not _carries(headers.get("authorization", ""), self._token):
            why = "send the token as Authorization: Bearer TOKEN, or as the password of any user"
            return HTTPStatus.UNAUTHORIZED, why
        if method in _READS:
            return None
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != host.lower():
            why = f"pages of other sites may not write here: the request came from {origin[:80]!r}"
            return HTTPStatus.FORBIDDEN, why
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _JSON:
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send JSON, with Content-Type: {_JSON}"
        return None

    def _is_known(self, host: str) -> bool:
        if ANY in self._hosts:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name.rstrip(".") in self._hosts or is_address(name)

    def _timely(self, receive: Receive) -> Receive:
        deadline = asyncio.get_running_loop().time() + self._body_seconds
        complete = False

        async def timely() -> Message:
            nonlocal complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise _SlowBodyError from None
            complete = not message.get("more_body", False)
            return message

        return timely


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    """Say whether only programs on this machine reach a server that listens there."""
    return host.lower() in _LOCAL or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def _carries(authorization: str, token: str) -> bool:
    scheme, _, given = authorization.partition(" ")
    given = given.strip()
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given.encode(), token.encode())


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


async def _answer(send: Send, status: HTTPStatus, why: str) -> None:
    name = status.phrase.lower().replace(" ", "_")
    headers = [(b"content-type", _JSON.encode()), (b"connection", b"close")]
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Basic realm="Headway", charset="UTF-8"'))
    body = msgspec.json.encode({"error": name, "message": why})
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
