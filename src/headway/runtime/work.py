"""The unit of work: what a handler reads, writes and publishes, committed as one.

Nothing that is written here happens before the handler has returned. Then everything takes effect
in one commit, together with the record that the event is done; or nothing does.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from types import CodeType
from typing import Any, TypeVar

import msgspec

from headway.core.catalogue import names_engine
from headway.core.data_type import event_of
from headway.core.document import STATUS
from headway.core.errors import (
    DocumentNotFoundError,
    NotAwaitedError,
    UnreadableDocumentError,
    WorkOverError,
)
from headway.core.event import Event, publishable, short_name
from headway.core.lifecycle import Lifecycle, State, lost_at_commit
from headway.core.origin import caller, origin, place, users_line
from headway.core.routing import checked_name
from headway.core.storable import copied
from headway.core.travel import Travel, instant
from headway.core.unreadable import is_stand_in
from headway.core.writes import (
    ID,
    Add,
    Document,
    Increment,
    InsertNew,
    Update,
    Write,
    applied,
    matches,
    target,
)
from headway.ports.bus import Message
from headway.ports.commit import TransactionBody
from headway.ports.documents import MOST_FOUND, Documents, whole
from headway.runtime.collection_names import CollectionNames
from headway.runtime.service import Subscription

T = TypeVar("T")
_BEGINS_WITH_TIME = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)


@dataclass(frozen=True, slots=True)
class Around:
    """What the work of all handlers in a worker has in common."""

    store: Documents
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    until_available: Callable[..., Awaitable[Any]] | None = None
    """Repeats a read while the store is unavailable; None: a read that fails raises."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop of the worker, where reads are awaited."""
    names: CollectionNames | None = None
    """Finds what is mistyped; None: there is no store."""


class Buffer:
    """What has been written and published so far."""

    over = False
    bodies: tuple[TransactionBody, ...] = ()
    put_off: AbstractSet[str] = frozenset()
    waited = False
    """A read had to wait for a store that was unavailable."""
    unawaited: dict[object, tuple[Coroutine[Any, Any, Any], str, CodeType, int]] | None = None
    """Reads that the handler has called and not awaited, and where."""
    unknown: dict[str, str] | None = None
    """Collections that the worker has not met before, and where the handler names them."""

    def __init__(  # noqa: PLR0917 (made for every event: keywords cost time)
        self,
        key: str,
        around: "Around",
        lifecycles: Mapping[str, Lifecycle],
        announced: AbstractSet[str] = frozenset(),
        subscription: Subscription | None = None,
        begun: tuple[str, ...] = (),
        hops: int = 0,
    ) -> None:
        self.key = key
        self.around = around
        self.lifecycles = lifecycles
        """Of collections whose new documents get the fields that recovery needs."""
        self.announced = announced
        """Event types that no service has to take."""
        self.subscription = subscription
        self.begun = begun
        """Of the documents that the event is about, those whose status the commit sets."""
        self.hops = hops
        """Of the event that is handled."""
        self.store = around.store
        self.writes: list[Write] = []
        self.outgoing: list[Message] = []
        self.seen: dict[tuple[str, str], bytes | Document] = {}
        """Documents as the handler last read them, with what it has written to them since."""

    def reading(
        self, name: str, call: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        """Give a read to be awaited, and keep it in mind until it is."""
        reading = self._awaited(call)
        if self.unawaited is None:
            self.unawaited = {}
        self.unawaited[call] = (reading, name, *caller(3))
        return reading

    async def _awaited(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        assert self.unawaited is not None  # noqa: S101 (the call is in it)
        _, name, code, line = self.unawaited.pop(call)
        loop = self.around.loop
        if loop is not None and loop is not asyncio.get_running_loop():
            raise TypeError(
                f"{name} at {place(code, line)} is awaited in another event loop than that of the "
                "worker. Await it in the handler itself, or make the handler a plain function, "
                "whose reads work in any thread."
            )
        return await call()

    def not_awaited(self, handler: object) -> NotAwaitedError:
        """Say which reads a handler never awaited; they are closed."""
        assert self.unawaited is not None  # noqa: S101 (the caller looked)
        places = []
        for reading, name, code, line in self.unawaited.values():
            reading.close()
            places.append(f"{name} at {place(code, line)}")
        return NotAwaitedError(origin(handler), places)

    async def read(self, call: Callable[[], Awaitable[T]]) -> T:
        """Read from the store, and wait while it is unavailable: that is no failure of a handler.

        Any other error is raised.
        """
        self.check()
        try:
            return await call()
        except Exception as error:
            if self.around.until_available is None or not names_engine(error):
                raise
        self.waited = True
        found: T = await self.around.until_available(
            "Reading documents", call, unless=lambda error: not names_engine(error)
        )
        return found

    def check(self) -> None:
        if self.over:
            raise WorkOverError(self.key)


class Work:
    """Given to a handler with its event."""

    __slots__ = ("_buffer", "attempt", "document_ids")

    def __init__(self, buffer: Buffer, attempt: int, document_ids: tuple[str, ...] = ()) -> None:
        self.attempt = attempt
        """The number of this attempt at the event, from 1."""
        self.document_ids = document_ids
        """Of the documents that the event is about, the ones that are to be worked on.

        Without those that are processed or given up, and those that another operation has taken up.
        """
        self._buffer = buffer

    @property
    def key(self) -> str:
        """Names this piece of work, the same in every attempt: pass it on to whoever takes keys."""
        return self._buffer.key

    def now(self) -> datetime:
        """Give the worker's own time, in UTC; in a trial it is that of the virtual clock."""
        return self._buffer.around.now()

    def documents(self, collection: str) -> "Collection":
        """Give a collection to read from and to write to."""
        return Collection(self._buffer, collection)

    def publish(
        self,
        event_type: Any,
        data: Any = None,
        *,
        event_id: str | None = None,
        version: str = "1.0",
    ) -> None:
        """Publish an event when this work is committed.

        `publish("OrderShipped", {"order": "7"})`, or an object of a type of data, whose name is the
        event type: `publish(OrderShipped(order="7"))`.

        Its id is made from this work and its place in it, so that every attempt gives the same. If
        no service takes its type yet, it is kept as unrouted until one does, unless the service
        `announces` the type.

        Raises:
            UnsendableError: A field of `data` holds what JSON would change: NaN, bytes, Decimal, a
                set, keys that are no texts. Fields of a Struct may hold them, except NaN.
        """
        buffer = self._buffer
        buffer.check()
        if type(event_type) is not str:
            event_type, data = event_of(event_type, data)
        checked_name("event_type", event_type)
        if event_id is not None and not isinstance(event_id, str):
            raise ValueError(f"event_id={event_id!r} is not accepted: use a text")
        named = event_id or nth_id(buffer.key, len(buffer.outgoing))
        given = {} if data is None else data
        event = Event(event_type, named, instant(buffer.around.now()), version, given)
        body = publishable(event)
        buffer.outgoing.append(
            Message(
                body=body,
                travel=Travel(operation=short_name(named), hops=buffer.hops + 1),
                event_type=event_type,
                needs_consumer=event_type not in buffer.announced,
            )
        )

    def put_off(self, document_id: str) -> None:
        """Defer a document of the event: what it needs is seen to be on its way.

        It stays pending and this operation uses no attempt, unless an earlier attempt of the same
        operation failed. Attempts that were counted before stay counted. A sweep takes it up again
        after 15 minutes (later if the backoff of its attempts lasts longer), unless another event
        comes for it before.
        """
        self._buffer.check()
        if document_id not in self.document_ids:
            raise ValueError(f"{document_id!r} cannot be put off: it is not in work.document_ids")
        self._buffer.put_off |= {document_id}

    def transaction(self, body: TransactionBody) -> None:
        """Run `body(connection)` inside the commit, for tables of your own.

        It may be a plain or a coroutine function on every store. On SQLite it is given the
        connection, and may not wait for anything. On MongoDB and PostgreSQL it is given the session
        or the connection, whose statements have to be awaited; a plain function can return one. It
        must leave COMMIT and ROLLBACK to the commit. What it raises fails the attempt.
        """
        if not callable(body):
            raise TypeError(
                f"Invalid work.transaction({body!r:.80}): it is no function. Use a function of the "
                "connection."
            )
        self._buffer.check()
        self._buffer.bodies += (body,)


class Writing:
    """The writing half of a collection, the same for both kinds of handlers."""

    def __init__(self, buffer: Buffer, collection: str) -> None:
        if type(collection) is not str or not collection:
            raise ValueError(
                f"Invalid work.documents({collection!r:.80}): it is no name of a collection. Use a "
                "text."
            )
        self._buffer = buffer
        self._name = collection
        names = buffer.around.names
        if names is not None and collection not in names.known:
            buffer.unknown = {collection: users_line()} | (buffer.unknown or {})

    def insert_new(self, documents: Document | Iterable[Document]) -> None:
        """Insert documents that are not there yet; those that are, by `_id`, are left alone."""
        given = [documents] if isinstance(documents, dict) else documents
        seen: set[str] = set()
        for document in given:
            copy = copied(document, self._name)
            if copy.get(ID) in seen:
                raise ValueError(f"{self._name}: {copy[ID]!r:.80} is given twice to insert_new")
            if not isinstance(copy.get(ID), str) or not copy[ID]:
                raise ValueError(
                    f"{self._name}: a document for insert_new needs a text under {ID!r}, "
                    "made from what it is about, so that a second attempt makes the same"
                )
            seen.add(copy[ID])
            self._check_status(copy)
            lifecycle = self._buffer.lifecycles.get(self._name)
            if lifecycle is not None:
                copy = lifecycle.born(copy, self._buffer.around.now())
                self._note_pending(lifecycle, copy)
            self._write(InsertNew(self._name, copy))

    def add(self, document: Document) -> None:
        """Append a document; its `_id` is made for it."""
        copy = copied(document, self._name)
        if ID in copy:
            raise ValueError(
                f"{self._name}: add makes the {ID!r} of a document itself; use insert_new for one "
                "with an id of its own"
            )
        self._buffer.check()
        self._check_status(copy)
        # Not made from the work: what is appended twice has to be seen twice.
        copy[ID] = self._buffer.around.new_id()
        self._write(Add(self._name, copy))

    def update(
        self, document_id: str, changes: Document, *, expect: Document | None = None
    ) -> None:
        """Change fields, if those in `expect` still hold what you read.

        Without `expect`, fields of a document that this handler has read must still hold what it
        read; a document that it has not read is changed whatever it holds, and so is any with
        `expect={}`. If a field holds something else, the handler runs again at once, within the
        same attempt. A document that
        is not there is DocumentNotFoundError. In a document of the event (`documents=`) the commit
        sets the status itself: a change that it would overwrite is ValueError.
        """
        _check_id(self._name, document_id)
        if ID in changes:
            raise ValueError(f"{self._name}: {ID!r} names a document and cannot be changed")
        _refuse_operators(self._name, "update", changes)
        whose = f"{self._name}/{document_id}"
        if document_id in self._buffer.begun:
            self._refuse_lost(document_id, changes)
        self._check_status(changes)
        copy = copied(changes, whose)
        if expect is not None:
            expected: Document | None = copied(expect, whose)
        else:
            seen = self._seen(document_id)
            expected = None if seen is None else {field: seen.get(field) for field in copy}
        self._write(Update(self._name, document_id, copy, expected))

    def increment(self, document_id: str, field: str, by: float = 1) -> None:
        """Add to a number; what is missing counts as 0."""
        _check_id(self._name, document_id)
        if not _is_number(by):
            raise ValueError(f"{self._name}: by={by!r} is no number to add")
        self._write(Increment(self._name, document_id, field, by))

    def _refuse_lost(self, document_id: str, changes: Document) -> None:
        subscription = self._buffer.subscription
        lifecycle = None if subscription is None else subscription.lifecycle
        if subscription is None or lifecycle is None or lifecycle.collection != self._name:
            return
        deferred = document_id in self._buffer.put_off
        why = lost_at_commit(lifecycle, changes, deferred=deferred)
        if why is not None:
            raise ValueError(
                f"Invalid update of {self._name}/{document_id} by {origin(subscription.handler)}: "
                f"{why}"
            )

    def _note_pending(self, lifecycle: Lifecycle, document: Document) -> None:
        names, by = self._buffer.around.names, self._buffer.subscription
        if names is None or by is None or self._name not in names.unattended:
            return
        if lifecycle.state(document) is State.PENDING:
            names.inserted(self._name, users_line(), by)

    def _check_status(self, fields: Document) -> None:
        if STATUS not in fields:
            return
        status, buffer = fields[STATUS], self._buffer
        names, by = buffer.around.names, buffer.subscription
        words = None if names is None else names.statuses.get(self._name)
        if words is None or type(status) is not str or status in words:
            return
        if names is not None and by is not None:
            names.check_status(self._name, status, users_line(), by)

    def _write(self, write: Write) -> None:
        self._buffer.check()
        self._buffer.writes.append(write)
        if self._buffer.seen and (seen := self._seen(target(write))) is not None:
            if isinstance(write, Update):
                seen.update(write.changes)
            elif isinstance(write, Increment):
                seen[write.field] = applied(write, seen)[write.field]

    def _note(self, documents: Iterable[Document]) -> None:
        """Keep what the handler reads: it may change its own copy before it writes."""
        seen = self._buffer.seen
        for each in documents:
            seen[self._name, each[ID]] = msgspec.json.encode(each)

    def _seen(self, document_id: str) -> Document | None:
        key = (self._name, document_id)
        seen = self._buffer.seen.get(key)
        if isinstance(seen, bytes):  # most of what is read is not written
            seen = self._buffer.seen[key] = msgspec.json.decode(seen)
        return seen

    async def _get(self, document_id: str) -> Document | None:
        _check_id(self._name, document_id)
        return (await self._fetch([document_id])).get(document_id)

    async def _get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        wanted = list(dict.fromkeys(ids))
        for one in wanted:
            _check_id(self._name, one)
        return await self._fetch(wanted)

    async def _require(self, ids: str | Iterable[str]) -> list[Document]:
        wanted = [ids] if isinstance(ids, str) else list(ids)
        for one in wanted:
            _check_id(self._name, one)
        found = await self._fetch(wanted)
        missing = [each for each in dict.fromkeys(wanted) if each not in found]
        if missing:
            raise DocumentNotFoundError(self._name, missing)
        return [found[each] for each in wanted]

    async def _find(self, where: Mapping[str, Any], limit: int | None) -> list[Document]:
        _check_where(self._name, "find", where)
        touched = {target(write) for write in self._own()}
        # Of those that the store gives, the touched ones may not match any more.
        store, wanted = self._buffer.store, MOST_FOUND + 1 if limit is None else limit
        most = wanted + len(touched)
        stored = await self._buffer.read(lambda: store.find(self._name, where, most))
        if not touched:
            self._note(stored)
            if limit is None:
                whole(stored, self._name, where)
            return list(stored)
        kept = [each for each in stored if each[ID] not in touched]
        own = (await self._fetch(sorted(touched))).values()
        both = [*kept, *(each for each in own if matches(each, where))]
        self._note(kept)
        if limit is None:
            whole(both, self._name, where)
        return sorted(both, key=lambda each: str(each[ID]))[:wanted]

    async def _count(self, where: Mapping[str, Any]) -> int:
        _check_where(self._name, "count", where)
        store, touched = self._buffer.store, sorted({target(write) for write in self._own()})
        number = await self._buffer.read(lambda: store.count(self._name, where))
        if not touched:
            return number
        before = await self._buffer.read(lambda: store.fetch(self._name, touched))
        after = await self._fetch(touched)
        return number + sum(
            matches(after[one], where) - (one in before and matches(before[one], where))
            for one in after
        )

    async def _fetch(self, ids: Sequence[str]) -> dict[str, Document]:
        store = self._buffer.store
        found = dict(await self._buffer.read(lambda: store.fetch(self._name, ids)))
        if lost := [one for one, document in found.items() if is_stand_in(document)]:
            raise UnreadableDocumentError(self._name, lost)
        wanted = set(ids)
        for write in self._own():
            if (where := target(write)) in wanted:
                found[where] = applied(write, found.get(where))
        self._note(found.values())
        return found

    def _own(self) -> list[Write]:
        return [write for write in self._buffer.writes if write.collection == self._name]


class Collection(Writing):
    """Documents of one collection, for handlers that are coroutines. Reads see own writes."""

    def get(self, document_id: str) -> Coroutine[Any, Any, Document | None]:
        """Give a document, or None."""
        return self._reading("get", partial(self._get, document_id))

    def get_many(self, ids: Iterable[str]) -> Coroutine[Any, Any, dict[str, Document]]:
        """Give the documents that are there, by id."""
        return self._reading("get_many", partial(self._get_many, ids))

    def require(self, ids: str | Iterable[str]) -> Coroutine[Any, Any, list[Document]]:
        """Give documents that must be there; DocumentNotFoundError names every missing one."""
        return self._reading("require", partial(self._require, ids))

    def find(
        self, where: Mapping[str, Any], *, limit: int | None = None
    ) -> Coroutine[Any, Any, list[Document]]:
        """Give documents whose fields hold these values, in the order of their ids.

        With `limit`, the first so many. Without it, all of them: more than 1,000 is ValueError.
        """
        return self._reading("find", partial(self._find, where, limit))

    def count(self, where: Mapping[str, Any]) -> Coroutine[Any, Any, int]:
        """Count the documents whose fields hold these values; `count({})` counts all."""
        return self._reading("count", partial(self._count, where))

    def _reading(
        self, name: str, call: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        return self._buffer.reading(f"work.documents({self._name!r}).{name}()", call)


def _check_where(collection: str, call: str, where: object) -> None:
    if not isinstance(where, Mapping):
        raise TypeError(
            f"{collection}: {call}({where!r:.80}) is no dict of fields. Use "
            f'{call}({{"status": "new"}}).'
        )
    _refuse_operators(collection, call, where)


def _refuse_operators(collection: str, call: str, fields: Mapping[str, Any]) -> None:
    """Refuse what MongoDB would carry out and other stores would take for a field."""
    inner = (key for value in fields.values() if isinstance(value, dict) for key in value)
    for key in (*fields, *inner):
        if str(key).startswith("$"):
            raise ValueError(
                f"{collection}: {call} takes fields and their values, and no operator such as "
                f"{key!r:.80}. To add to a number, use increment."
            )


def _is_number(by: object) -> bool:
    return isinstance(by, int | float) and not isinstance(by, bool) and math.isfinite(by)


def _check_id(collection: str, document_id: object) -> None:
    if not isinstance(document_id, str) or not document_id:
        raise ValueError(f"{collection}: {document_id!r} is no id: use a text")


def nth_id(key: str, index: int, kind: str = "event") -> str:
    """Make an id of a piece of work and a place in it: the same in every attempt.

    If the work is named by an id that begins with its time, this one begins with the same time, so
    that what belongs together lies together in an index.
    """
    digits = sha256(f"{key}#{kind}#{index}".encode()).hexdigest()
    variant = "89ab"[int(digits[0], 16) & 3]
    rest = f"{digits[1:4]}-{variant}{digits[4:7]}-{digits[7:19]}"
    named = key[-36:]
    if _BEGINS_WITH_TIME.fullmatch(named):
        return f"{named[:13]}-7{rest}"
    return f"{digits[19:27]}-{digits[27:31]}-5{rest}"
