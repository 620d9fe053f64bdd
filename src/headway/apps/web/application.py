"""All pages and doors as one application."""

import contextlib
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.apps.web.errors_api import ErrorsApi
from headway.apps.web.errors_page import ErrorsPage
from headway.assembly.http_guard import BODY_WITHIN, HttpGuard
from headway.assembly.settings import UI_HOSTS
from headway.ports.clock import Clock
from headway.ports.error_book import ErrorBook

_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


def application(
    book: ErrorBook,
    clock: Clock,
    *,
    hosts: Iterable[str],
    token: str | None = None,
    body_within: timedelta = BODY_WITHIN,
) -> Starlette:
    """Build it for these host names; with a token, only for clients that have it."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        book.close()

    return Starlette(
        routes=[*ErrorsApi(book, clock).routes(), *ErrorsPage(book).routes()],
        middleware=[
            Middleware(_Headers),
            Middleware(
                HttpGuard,
                hosts=hosts,
                hosts_setting=UI_HOSTS,
                token=token,
                body_within=body_within,
            ),
        ],
        lifespan=lifespan,
    )


class _Headers:
    """Adds the headers that keep a page from loading, or being made, anything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self._app(scope, receive, guarded)
