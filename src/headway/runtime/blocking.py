"""The unit of work for handlers that are plain functions: they run in a thread, and may wait."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from headway.core.writes import Document
from headway.ports.commit import TransactionBody
from headway.runtime.work import Buffer, Work, Writing

Wait = Callable[[Coroutine[Any, Any, Any]], Any]


class BlockingWork:
    """The same as `Work`, with reads that block only the handler's own thread."""

    __slots__ = ("_buffer", "_wait", "_work")

    def __init__(self, work: Work, buffer: Buffer, loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._buffer = buffer
        self._wait: Wait = partial(_wait_in, loop)

    @property
    def attempt(self) -> int:
        return self._work.attempt

    @property
    def document_ids(self) -> tuple[str, ...]:
        return self._work.document_ids

    @property
    def key(self) -> str:
        return self._work.key

    def now(self) -> datetime:
        return self._work.now()

    def documents(self, collection: str) -> "BlockingCollection":
        return BlockingCollection(self._buffer, collection, self._wait)

    def publish(
        self,
        event_type: Any,
        data: Any = None,
        *,
        event_id: str | None = None,
        version: str = "1.0",
    ) -> None:
        self._work.publish(event_type, data, event_id=event_id, version=version)

    def put_off(self, document_id: str) -> None:
        self._work.put_off(document_id)

    def transaction(self, body: TransactionBody) -> None:
        self._work.transaction(body)


def _wait_in(loop: asyncio.AbstractEventLoop, reading: Coroutine[Any, Any, Any]) -> Any:
    if _runs_here(loop):  # it would wait for itself, and everything with it
        reading.close()
        raise TypeError(
            "a handler that is a coroutine was given the work of a plain function, because a plain "
            "function returned it: make that one `async def`, or put functools.wraps around it"
        )
    return asyncio.run_coroutine_threadsafe(reading, loop).result()


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class BlockingCollection(Writing):
    """Documents of one collection, for handlers that are plain functions."""

    def __init__(self, buffer: Buffer, collection: str, wait: Wait) -> None:
        super().__init__(buffer, collection)
        self._wait = wait

    def get(self, document_id: str) -> Document | None:
        """Give a document, or None."""
        found: Document | None = self._wait(self._get(document_id))
        return found

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        """Give the documents that are there, by id."""
        found: dict[str, Document] = self._wait(self._get_many(ids))
        return found

    def require(self, ids: str | Iterable[str]) -> list[Document]:
        """Give documents that must be there; DocumentNotFoundError names every missing one."""
        found: list[Document] = self._wait(self._require(ids))
        return found

    def find(self, where: Mapping[str, Any], *, limit: int | None = None) -> list[Document]:
        """Give documents whose fields hold these values, in the order of their ids.

        With `limit`, the first so many. Without it, all of them: more than 1,000 is ValueError.
        """
        found: list[Document] = self._wait(self._find(where, limit))
        return found

    def count(self, where: Mapping[str, Any]) -> int:
        """Count the documents whose fields hold these values; `count({})` counts all."""
        number: int = self._wait(self._count(where))
        return number
