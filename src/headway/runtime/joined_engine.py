"""Make an engine out of a bus of one system and a store of another, or of a bus alone."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from headway.ports.bus import Bus
from headway.ports.documents import Documents
from headway.ports.engine import Engine, Sweeping
from headway.ports.history import History
from headway.ports.letters import Letters
from headway.ports.places import BusPlaces, Ends
from headway.ports.records import Decisions, DoneRecords
from headway.ports.unrouted import Unrouted
from headway.runtime.decided_letters import DecidedLetters
from headway.runtime.finishing import Store, StoreThenBus
from headway.runtime.joined_places import JoinedPlaces, StorelessPlaces
from headway.runtime.storeless import BusOnly, NoDocuments, NoRecords


class BusParts(Protocol):
    """What a bus brings along. Its letters and places know nothing of records."""

    @property
    def bus(self) -> Bus: ...
    @property
    def letters(self) -> Letters: ...
    @property
    def places(self) -> BusPlaces: ...
    @property
    def unrouted(self) -> Unrouted: ...
    @property
    def history(self) -> History: ...


class StoreParts(Store, Decisions, Protocol):
    """What a store brings along."""

    @property
    def records(self) -> DoneRecords: ...
    @property
    def documents(self) -> Documents: ...
    @property
    def ends(self) -> Ends: ...
    @property
    def history(self) -> History: ...
    @property
    def sweeping(self) -> Sweeping | None: ...
    @property
    def aside(self) -> Callable[[], AbstractAsyncContextManager[Documents]] | None: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...


def with_store(parts: BusParts, store: StoreParts) -> Engine:
    """Give an engine on which work takes effect once: commit in the store, send, settle."""
    letters = DecidedLetters(parts.letters, store)
    return Engine(
        bus=parts.bus,
        finisher=StoreThenBus(store, store.records, parts.bus, letters),
        letters=letters,
        records=store.records,
        documents=store.documents,
        places=JoinedPlaces(parts.places, parts.letters, store.ends),
        unrouted=parts.unrouted,
        history=store.history,
        history_without_store=parts.history,
        open_store=store.open,
        close_store=store.close,
        aside=store.aside,
        sweeping=store.sweeping,
    )


def without_store(parts: BusParts) -> Engine:
    """Give an engine on which work is done at least once: send, settle."""
    return Engine(
        bus=parts.bus,
        finisher=BusOnly(parts.bus, parts.letters),
        letters=parts.letters,
        records=NoRecords(),
        documents=NoDocuments(),
        places=StorelessPlaces(parts.places),
        unrouted=parts.unrouted,
        history=parts.history,
        has_store=False,
    )
