"""All pages and doors as one application."""

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.apps.web.errors_api import ErrorsApi
from headway.apps.web.errors_page import ErrorsPage
from headway.ports.clock import Clock
from headway.ports.error_book import ErrorBook

_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


def application(book: ErrorBook, clock: Clock, *, hosts: list[str]) -> Starlette:
    """Build it. Requests for other hosts are refused: a foreign page must not read this one."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        book.close()

    return Starlette(
        routes=[*ErrorsApi(book, clock).routes(), *ErrorsPage(book).routes()],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
            Middleware(_Guarded),
        ],
        lifespan=lifespan,
    )


class _Guarded:
    """Adds the headers that keep a page from loading, or being made, anything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self._app(scope, receive, guarded)
