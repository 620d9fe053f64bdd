"""The record of who decided what about documents: written before a change, and after it.

A change that was killed in between has its first note only, and that is seen.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from headway.core.decision import Decision
from headway.core.failure import note, words
from headway.core.secrets import hidden
from headway.core.showing import shown
from headway.core.travel import instant
from headway.core.writes import Document
from headway.ports.clock import Clock
from headway.ports.desk import DocumentDesk
from headway.runtime.documents_report import DocumentsReport

_LOG = logging.getLogger("headway.operator")

_LOOKED_AT = 200
"""Changes, for those of one kind."""

INTENDED, COMPLETE, STOPPED = "intended", "complete", "stopped"
"""What a note says of its change: not begun, or not ended; carried out; ended by an error."""


class History:
    """Notes in the store, two for each change."""

    def __init__(self, desk: DocumentDesk, clock: Clock, who: str) -> None:
        self._desk = desk
        self._clock = clock
        self._who = who

    @asynccontextmanager
    async def recorded(self, change: str, report: DocumentsReport) -> AsyncIterator[None]:
        """Note what is intended, let it be done, and note what came of it, however it ended."""
        await self._note(change, report, INTENDED)
        try:
            yield
        except BaseException as error:
            try:
                await self._note(change, report, STOPPED, why=_said(error))
            except Exception as also:  # noqa: BLE001 (the first note is there, and says enough)
                note(error, f"what came of it could not be noted either: {_said(also)}")
            raise
        await self._note(change, report, COMPLETE)

    async def _note(
        self, change: str, report: DocumentsReport, outcome: str, why: str = ""
    ) -> None:
        entry: Document = {
            "change": change,
            "at": instant(self._clock.now()),
            "who": self._who,
            "what": report.decision.value,
            "collection": report.collection,
            "selection": report.selection,
            "outcome": outcome,
            "chosen": report.chosen,
            "done": report.done,
            "meanwhile": report.meanwhile,
            "refused": report.refused.total(),
            "ids": report.ids,
            "retryAt": None if report.at is None else instant(report.at),
        }
        if why:
            entry["why"] = shown(why)
        try:
            await self._desk.note(entry)
        finally:
            if outcome != INTENDED:
                _log(entry)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {hidden(words(error))}"


def _log(entry: Mapping[str, Any]) -> None:
    _LOG.info(
        "%s of %s by %s: %d of %d documents (%s), %s",
        entry["what"],
        entry["collection"],
        shown(entry["who"]),
        entry["done"],
        entry["chosen"],
        shown(entry["selection"]),
        entry["outcome"],
        extra={
            "operator": entry["who"],
            "change": entry["what"],
            "collection": entry["collection"],
            "documents": entry["done"],
            "chosen": entry["chosen"],
            "meanwhile": entry["meanwhile"],
            "filters": entry["selection"],
        },
    )


async def read_history(desk: DocumentDesk, limit: int) -> Sequence[Document]:
    """Give the latest changes, the newest first, each by the note of how it ended, if it did."""
    latest: dict[str, Document] = {}
    for each in await desk.notes(2 * limit):  # of each change there are at most two
        change = str(each.get("change"))
        if change not in latest or each.get("outcome") != INTENDED:
            latest[change] = each
    return list(latest.values())[:limit]


async def read_archivings(desk: DocumentDesk, collection: str, limit: int) -> Sequence[Document]:
    """Give the latest changes by which documents of a collection were put away, likewise."""
    archived = {"what": Decision.ARCHIVE.value, "collection": collection}
    latest = await read_history(desk, _LOOKED_AT)
    return [each for each in latest if archived.items() <= each.items()][:limit]
