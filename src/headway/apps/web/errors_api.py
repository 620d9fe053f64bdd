"""The API of error reports: take them in, and give them back."""

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headway.core.error_report import (
    LEVELS,
    OUTCOMES,
    ErrorFilter,
    read_report,
)
from headway.core.suggestion import suggestion
from headway.ports.clock import Clock
from headway.ports.error_book import ErrorBook

W = TypeVar("W", bound=str)
LARGEST_BODY = 1_000_000
MOST_AT_ONCE = 1_000
_LARGEST_LIST = 10_000_000
"""Bytes of a whole answer."""
_AT_ONCE = 8
"""Reports that are read and written together."""
USUAL = 100
FILTER = tuple(each.name for each in msgspec.structs.fields(ErrorFilter))


class ErrorsApi:
    """`/api/errors` and `/api/stats` over a book of errors."""

    def __init__(self, book: ErrorBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock

    def routes(self) -> list[Route]:
        return [
            Route("/api/errors", self.take, methods=["POST"]),
            Route("/api/errors", self.list, methods=["GET"]),
            Route("/api/errors/{error_id}", self.one, methods=["GET"]),
            Route("/api/stats", self.stats, methods=["GET"]),
        ]

    async def take(self, request: Request) -> Response:
        body = await _bounded_body(request)
        if body is None:
            return refusal(413, f"a report has at most {LARGEST_BODY:,} bytes")
        try:
            report = await run_in_threadpool(read_report, body)
        except ValueError as error:
            return refusal(400, str(error))
        error_id = str(uuid.uuid4())
        await run_in_threadpool(self._book.add, report, error_id, self._clock.now())
        return JSONResponse({"status": "ok", "error_id": error_id}, 201)

    async def list(self, request: Request) -> Response:
        try:
            refuse_unknown(request, (*FILTER, "limit", "offset"))
            which, offset = read_filter(request), read_offset(request)
            limit = _number(request, "limit", USUAL, low=1, high=MOST_AT_ONCE)
        except ValueError as error:
            return refusal(400, str(error))
        ids, total = await run_in_threadpool(self._book.ids, which, limit=limit, offset=offset)
        end = msgspec.json.encode({"total": total, "limit": limit, "offset": offset})
        return StreamingResponse(self._listed(ids, end), media_type="application/json")

    async def _listed(self, ids: Sequence[str], end: bytes) -> AsyncIterator[bytes]:
        """Write a list part by part, so that only a few reports are in memory at a time."""
        # Of a few that are long all is shown, of many no more than one answer can hold.
        size = _LARGEST_LIST // max(1, len(ids))
        before = b'{"errors":['
        for first in range(0, len(ids), _AT_ONCE):
            some = ids[first : first + _AT_ONCE]
            for body in await run_in_threadpool(self._encoded, some, size):
                yield before + body
                before = b","
        yield (before if before != b"," else b"") + b"]," + end.removeprefix(b"{")

    def _encoded(self, ids: Sequence[str], size: int) -> Sequence[bytes]:
        found = (self._book.get(error_id) for error_id in ids)  # the oldest may be gone by now
        return [msgspec.json.encode(kept.flat_within(size)) for kept in found if kept is not None]

    async def one(self, request: Request) -> Response:
        error_id = request.path_params["error_id"]
        kept = await run_in_threadpool(self._book.get, error_id)
        if kept is None:
            return refusal(404, f"there is no error {error_id}, or no longer")
        return _json(kept.flat())

    async def stats(self, request: Request) -> Response:
        try:
            refuse_unknown(request, ())
        except ValueError as error:
            return refusal(400, str(error))
        return _json(msgspec.structs.asdict(await run_in_threadpool(self._book.stats)))


def refusal(status: int, why: str) -> Response:
    return JSONResponse({"status": "error", "error": why}, status)


def refuse_unknown(request: Request, names: Sequence[str]) -> None:
    """Refuse a question with a name that says nothing here: it would be answered as another one."""
    for name in request.query_params:
        if name not in names:
            cure = suggestion(name.lower(), names) if names else "nothing can be asked for here"
            raise ValueError(f"{name[:40]!r} is not accepted: {cure}")


def read_filter(request: Request) -> ErrorFilter:
    """Read which errors are asked for; ValueError names what cannot be used."""
    asked = request.query_params
    return ErrorFilter(
        service=asked.get("service") or None,
        level=_one_of(LEVELS, "level", asked.get("level")),
        error_type=asked.get("error_type") or None,
        outcome=_one_of(OUTCOMES, "outcome", asked.get("outcome")),
    )


def read_offset(request: Request) -> int:
    """Read how many of the newest are passed over; ValueError as above."""
    return _number(request, "offset", 0, low=0, high=10**9)


def _one_of(words: Sequence[W], name: str, text: str | None) -> W | None:
    for word in words:
        if text == word:
            return word
    if text:
        raise ValueError(f"{name}={text[:40]!r} is not accepted: use {', '.join(words)}")
    return None


def _number(request: Request, name: str, usual: int, *, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None or not text:
        return usual
    # isdecimal alone would take any length, and int() refuses those of thousands of digits.
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and low <= int(text) <= high):  # noqa: PLR2004
        raise ValueError(f"{name}={text[:40]!r} is not accepted: use {low} to {high}")
    return int(text)


async def _bounded_body(request: Request) -> bytes | None:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY:
            return None
    return bytes(body)


def _json(value: Any) -> Response:
    # msgspec, for a context may hold what the standard library would write as NaN.
    return Response(msgspec.json.encode(value), media_type="application/json")
