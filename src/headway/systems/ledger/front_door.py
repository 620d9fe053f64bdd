"""The ledger over HTTP."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from headway.http import HttpGuard
from headway.systems.ledger import answers, openapi
from headway.systems.ledger.answers import Answer
from headway.systems.ledger.events import IDENTIFIER, IDENTIFIER_IN_WORDS
from headway.systems.ledger.exposition import exposition
from headway.systems.ledger.intake import Intake
from headway.systems.ledger.metrics import LedgerMetrics
from headway.systems.ledger.page import page
from headway.systems.ledger.reception import Reception
from headway.systems.ledger.request import UnacceptableRequestError, idempotency_key, read_body
from headway.systems.ledger.rows import totals_from
from headway.systems.ledger.settings import ALLOWED_HOSTS, LedgerSettings
from headway.systems.ledger.store import Store

T = TypeVar("T")

_PAGE = 1000
_HEALTH_SECONDS = 3.0

After = Annotated[
    str,
    Query(
        pattern=r"^[A-Za-z0-9._:-]{0,128}\z",
        description="The last id of the page before; left out: from the beginning.",
    ),
]
Limit = Annotated[
    int, Query(ge=1, le=_PAGE, description=f"How many at most, 1 to {_PAGE}; left out: 100.")
]
Id = Annotated[str, Path(description=f"The id, of {IDENTIFIER_IN_WORDS}")]

_QUERIES = {
    "after": f"use an id, {IDENTIFIER_IN_WORDS}, or nothing",
    "limit": f"use a whole number from 1 to {_PAGE}",
}


def create_app(store: Store, settings: LedgerSettings, metrics: LedgerMetrics) -> FastAPI:
    """Build the service around a store, which it opens when it is started."""
    # FastAPI's own pages fetch their scripts from elsewhere; ours works without a network.
    app = FastAPI(
        title="Headway ledger",
        version="1",
        description=openapi.ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=lambda _app: store.opened(),
    )
    app.add_middleware(
        HttpGuard, hosts=(settings.host, *settings.allowed_hosts), hosts_setting=ALLOWED_HOSTS
    )
    reception = Reception(
        Intake(store, metrics, settings), metrics, max_bulk_events=settings.max_bulk_events
    )
    _add_intake(app, reception, settings, metrics)
    _add_reading(app, store, settings)
    _add_watching(app, store, metrics)
    _add_pages(app)
    _add_refusals(app)
    return app


def _add_intake(
    app: FastAPI, reception: Reception, settings: LedgerSettings, metrics: LedgerMetrics
) -> None:
    @app.post("/api/v1/events", openapi_extra=openapi.ONE_EVENT, responses=openapi.ANSWERS)
    async def store_an_event(request: Request) -> Response:
        """Store one event with its effect; 201 means that it is on disk."""
        with metrics.timed("single"):
            body = await read_body(request, settings.max_body_bytes)
            return respond(await reception.single(body, idempotency_key(request)))

    @app.post("/api/v1/events/bulk", openapi_extra=openapi.BULK, responses=openapi.BULK_ANSWERS)
    async def store_many_events(request: Request) -> Response:
        """Store many events, each in a transaction of its own.

        201: all are stored. 207: not all are; `results` has one answer for each, in the order in
        which they came, with the status that it would have had alone.
        """
        with metrics.timed("bulk"):
            body = await read_body(request, settings.max_bulk_bytes)
            return respond(await reception.bulk(body, idempotency_key(request)))

    @app.exception_handler(UnacceptableRequestError)
    async def unacceptable(_request: Request, error: UnacceptableRequestError) -> Response:
        metrics.settled("unknown", "invalid")
        return respond(error.answer)


def _add_reading(app: FastAPI, store: Store, settings: LedgerSettings) -> None:
    async def asked(question: Callable[[], Awaitable[T]], tell: Callable[[T], Any]) -> Response:
        try:
            found = await question()
        except Exception as error:  # noqa: BLE001 (any fault of the database ends in one answer)
            return respond(answers.unreadable(error, status=settings.exhausted_status))
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "there is none with this id")
        return JSONResponse(tell(found))

    @app.get("/api/v1/events", responses=openapi.EVENTS_LISTED)
    async def list_events(after: After = "", limit: Limit = 100) -> Response:
        """List stored events by id, those behind `after`, as in `?after=pay-0001&limit=50`."""
        return await asked(
            lambda: store.events_after(after, limit),
            lambda rows: {"events": [dict(row) for row in rows]},
        )

    @app.get("/api/v1/events/{event_id}", responses=openapi.EVENT_SHOWN)
    async def show_event(event_id: Id) -> Response:
        """Show one event as it was stored."""
        _known_shape(event_id)
        return await asked(
            lambda: store.find_event(event_id),
            lambda there: (
                {**msgspec.to_builtins(there.event), "stored_at": there.stored_at}
                if there
                else None
            ),
        )

    @app.get("/api/v1/entities", responses=openapi.ENTITIES_LISTED)
    async def list_entities(after: After = "", limit: Limit = 100) -> Response:
        """List cars and loans by id, those behind `after`, as events are listed."""
        return await asked(
            lambda: store.entities_after(after, limit),
            lambda entities: {"entities": [entity.described() for entity in entities]},
        )

    @app.get("/api/v1/entities/{entity_id}", responses=openapi.ENTITY_SHOWN)
    async def show_entity(entity_id: Id) -> Response:
        """Show one car or loan as the events have made it."""
        _known_shape(entity_id)
        return await asked(
            lambda: store.find_entity(entity_id),
            lambda entity: entity.described() if entity else None,
        )

    @app.get("/api/v1/totals", responses=openapi.TOTALS_SHOWN)
    async def show_totals() -> Response:
        """Set the sums of all events beside the sums of all entities; they must be the same."""
        return await asked(store.totals, totals_from)


def _add_watching(app: FastAPI, store: Store, metrics: LedgerMetrics) -> None:
    @app.get("/health", responses=openapi.HEALTH)
    async def health() -> Response:
        """Say whether the database answers."""
        try:
            async with asyncio.timeout(_HEALTH_SECONDS):
                await store.find_entity("-")
        except Exception as error:  # noqa: BLE001 (whatever it is, we are not well)
            name, why, _ = answers.judged(error)
            return JSONResponse(
                {"status": "unwell", "error": name, "reason": why}, HTTPStatus.SERVICE_UNAVAILABLE
            )
        return JSONResponse({"status": "well"})

    @app.get("/metrics", responses=openapi.METRICS, response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Give the counters of all processes of this service, for Prometheus."""
        return Response(exposition(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _add_pages(app: FastAPI) -> None:
    app.openapi = lambda: openapi.described(app)  # type: ignore[method-assign]

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(page(app.openapi(), str(request.base_url)))

    @app.get("/", include_in_schema=False)
    async def home() -> Response:
        return RedirectResponse("/docs")


def _add_refusals(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def not_here(_request: Request, error: HTTPException) -> Response:
        name = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        body = {"error": name, "message": str(error.detail)}
        return JSONResponse(body, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def not_understood(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = str(first["loc"][-1])
        return respond(answers.refused(_QUERIES.get(field, str(first["msg"])), field=field))

    @app.exception_handler(Exception)
    async def broken(_request: Request, _error: Exception) -> Response:
        body = {"error": "internal", "message": "a fault of the ledger itself; the log says more"}
        return JSONResponse(body, HTTPStatus.INTERNAL_SERVER_ERROR)


def respond(answer: Answer) -> Response:
    return JSONResponse(answer.body, answer.status, headers=answer.headers)


def _known_shape(identifier: str) -> None:
    # No id of another shape is ever stored, and PostgreSQL refuses some characters altogether.
    if re.match(IDENTIFIER, identifier) is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is none with this id")
