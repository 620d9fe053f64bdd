"""Names of collections, and words in `status`, that a handler has perhaps mistyped."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from difflib import SequenceMatcher

from headway.core.decision import archived_from
from headway.core.origin import origin
from headway.core.showing import shown
from headway.core.suggestion import nearest
from headway.ports.clock import Clock
from headway.ports.desk import DocumentDesk
from headway.runtime.service import Service, Subscription

_NEAR = 0.8
_ASKED_EVERY = timedelta(seconds=10)
_PARTS = re.compile(r"[\W_]+")
_DIGITS = re.compile(r"\d+")
_MOST = 100
"""Names, or words of one collection, that a worker checks. Names made for each event end this."""
_LOG = logging.getLogger("headway")


def misnamed(names: Iterable[str], there: Sequence[str]) -> Mapping[str, str]:
    """Give, for a collection without any document, one of nearly the same name that has some."""
    names = list(names)
    others = [each for each in there if each not in names]
    found = {name: _nearest(name, others) for name in names if name not in there}
    return {name: near for name, near in found.items() if near}


def _nearest(name: str, others: Iterable[str]) -> str:
    near = [each for each in others if archived_from(each) is None and _is_near(name, each)]
    return max(near, key=lambda each: _likeness(name, each), default="")


def _is_near(name: str, other: str) -> bool:
    """Say whether one name is the other one mistyped.

    Families of names are not: `orders` and `orders_eu`, `events_2024` and `events_2025`.
    """
    ours, theirs = (_PARTS.split(each.casefold()) for each in (name, other))
    if len(ours) != len(theirs):
        return "".join(ours) == "".join(theirs)
    return all(
        _likeness(one, its) >= _NEAR and _DIGITS.findall(one) == _DIGITS.findall(its)
        for one, its in zip(ours, theirs, strict=True)
    )


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


class CollectionNames:
    """Says for a worker which collection, or which status, was perhaps meant; each once."""

    def __init__(self, services: Sequence[Service], desk: DocumentDesk, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock
        self._there: Sequence[str] = ()
        self._asked: datetime | None = None
        about = [
            each.lifecycle
            for service in services
            for each in service.subscriptions.values()
            if each.lifecycle is not None
        ]
        lifecycles = [*about, *(each for service in services for each in service.lifecycles)]
        self.known = {each.collection for each in lifecycles}
        """Collections that are declared, and those that were checked."""
        self.unattended = self.known - {each.collection for each in about}
        """Of these, the ones that no handler here is about, until one is inserted into."""
        self._pending: dict[str, tuple[str, str]] = {}
        """The ones with new documents: the handler that inserts them, and its line."""
        self._words: dict[str, set[str]] = {}
        flagged = {each.collection for each in lifecycles if each.flag is not None}
        for each in lifecycles:
            if each.collection not in flagged:  # elsewhere the status may be any word
                self._words.setdefault(each.collection, set()).update(each.words)
        self.statuses = {name: set(words) for name, words in self._words.items()}
        """By collection: words of its lifecycles, and those that were checked."""

    async def meant(self, collection: str) -> str:
        """Give a collection of nearly the same name, if there is no document in this one."""
        return misnamed([collection], await self._collections()).get(collection, "")

    async def check(self, used: Mapping[str, str], by: Subscription) -> None:
        """Warn of collections that a handler used, each with its line, if none is in them.

        Call it before what the handler wrote is committed: then they hold documents.
        """
        new = [each for each in used if each not in self.known and len(self.known) < _MOST]
        for name in new:
            self.known.add(name)
            there = await self._collections()
            near = "" if name in there else _nearest(name, {*there, *self.known} - {name})
            if near:
                _LOG.warning(
                    "Handler %s uses the collection %s at %s, in which there is no document. Did "
                    "you mean %s? If both names are meant, ignore this: it is said once.",
                    origin(by.handler),
                    shown(name),
                    used[name],
                    shown(near),
                )

    def check_status(self, collection: str, status: str, line: str, by: Subscription) -> None:
        """Warn of a status that is nearly one of those that Headway reads."""
        checked = self.statuses[collection]
        if status in checked or len(checked) >= _MOST:
            return
        checked.add(status)
        said = status.strip().casefold()
        words = {each.casefold(): each for each in self._words[collection]}
        near = nearest(said, words, cutoff=_NEAR)
        if near and (said == near or not said.endswith(near)):  # `unprocessed` is another word
            _LOG.warning(
                "Handler %s writes status=%r into a document of %s at %s: this is no status that "
                "Headway knows: every event runs again, and no sweep finds the document. Did you "
                "mean %r?",
                origin(by.handler),
                shown(status),
                shown(collection),
                line,
                words[near],
            )

    def inserted(self, collection: str, line: str, by: Subscription) -> None:
        """Note that a handler inserts documents that no handler of this worker is about."""
        self.unattended.discard(collection)
        self._pending[collection] = origin(by.handler), line

    def tell_of_unattended(self, attended: AbstractSet[str]) -> None:
        """Warn of new documents in collections that no handler of any worker is about."""
        for collection, (handler, line) in self._pending.items():
            if collection not in attended:
                _LOG.warning(
                    "Handler %s inserts documents into %s at %s, which stay pending: no running "
                    "service has a handler with documents=(%r, ...), so no event and no sweep is "
                    "for them. Write that handler, and publish its event with each insert; or "
                    "leave %s out of Service(lifecycles=), if no handler is to work on them.",
                    handler,
                    shown(collection),
                    line,
                    collection,
                    shown(collection),
                )
        self._pending.clear()

    async def _collections(self) -> Sequence[str]:
        """Name the collections in the store; it is asked seldom."""
        now = self._clock.now()
        if self._asked is None or not timedelta() <= now - self._asked < _ASKED_EVERY:
            self._asked = now
            try:
                self._there = await self._desk.collections()
            except Exception:  # noqa: BLE001 (whatever a driver raises: only the hint is missing)
                self._there = ()
        return self._there
