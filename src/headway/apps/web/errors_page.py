"""`/ui`: the errors that were reported, for a person to look through."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from headway.apps.web.errors_api import FILTER, read_filter, read_offset, refuse_unknown
from headway.core.error_report import LEVELS, OUTCOMES, KeptError
from headway.ports.error_book import ErrorBook

_PAGE = 50
_LONGEST_MESSAGE = 5_000
_LONGEST_TRACE = 20_000
_LONGEST_CONTEXT = 10_000


class ErrorsPage:
    """Shows the newest errors first, a page at a time; every text from outside is escaped."""

    def __init__(self, book: ErrorBook) -> None:
        self._book = book
        templates = Environment(
            loader=PackageLoader("headway.apps.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._page = templates.get_template("errors.html")
        self._refused = templates.get_template("refused.html")

    def routes(self) -> list[Route]:
        return [Route("/ui", self.show), Route("/", self.health)]

    async def health(self, request: Request) -> Response:
        """Say that it is well; send a browser on to the page."""
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("ui")
        stats = await run_in_threadpool(self._book.stats)
        body = msgspec.json.encode({"status": "ok", "total_errors": stats.total_errors})
        return Response(body, media_type="application/json")

    async def show(self, request: Request) -> Response:
        try:
            refuse_unknown(request, (*FILTER, "offset"))
            which, offset = read_filter(request), read_offset(request)
        except ValueError as error:
            return HTMLResponse(self._refused.render(why=str(error)), 400)
        stats = await run_in_threadpool(self._book.stats)
        ids, total = await run_in_threadpool(self._book.ids, which, limit=_PAGE, offset=offset)
        rows = await run_in_threadpool(self._rows, ids)
        asked = {name: value for name, value in msgspec.structs.asdict(which).items() if value}

        def link(**changes: Any) -> str:
            terms = {**asked, **changes}
            return "?" + urlencode({name: value for name, value in terms.items() if value})

        page = self._page.render(
            stats=stats,
            by_level=[(each, stats.by_level[each]) for each in LEVELS if each in stats.by_level],
            by_outcome=[(it, stats.by_outcome[it]) for it in OUTCOMES if it in stats.by_outcome],
            asked=asked,
            errors=rows,
            first=offset + 1,
            last=offset + len(rows),
            total=total,
            link=link,
            newer=link(offset=max(0, offset - _PAGE)) if offset else None,
            older=link(offset=offset + _PAGE) if offset + _PAGE < total else None,
        )
        return HTMLResponse(page)

    def _rows(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        found = (self._book.get(error_id) for error_id in ids)  # the oldest may be gone by now
        return [_row(kept) for kept in found if kept is not None]


def _row(kept: KeptError) -> dict[str, Any]:
    report, context = kept.report, kept.report.context
    return {
        "id": kept.error_id,
        "at": f"{kept.timestamp:%Y-%m-%d %H:%M:%SZ}",
        "service": report.service,
        "level": report.level,
        "type": report.error_type or "",
        "outcome": report.outcome or "",
        "message": _beginning(report.message, _LONGEST_MESSAGE),
        "trace": report.stack_trace and _beginning(report.stack_trace, _LONGEST_TRACE),
        "context": None if not context else _indented(context),
    }


def _indented(context: dict[str, Any]) -> str:
    body = msgspec.json.encode(context)
    # What is long as it is would only become longer: each level is indented further.
    shown = body if len(body) > _LONGEST_CONTEXT else msgspec.json.format(body, indent=2)
    return _beginning(shown.decode(), _LONGEST_CONTEXT)


def _beginning(text: str, longest: int) -> str:
    more = len(text) - longest
    return text if more <= 0 else f"{text[:longest]}\n... {more:,} more characters, see as JSON"
