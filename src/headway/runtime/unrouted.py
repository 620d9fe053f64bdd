"""Events that no service takes: say so once a minute for each type, and let a person decide."""

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from headway.core.errors import ConfigurationError
from headway.core.facts import EventsRouted, EventsUnrouted, Fact
from headway.core.ids import checked_ids
from headway.core.suggestion import nearest
from headway.core.writes import Document
from headway.ports.bus import Message
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.history import newest_first
from headway.ports.unrouted import MALFORMED, OnStep, Unrouted, UnroutedEvent
from headway.runtime.history import Change, Operator, Subject, checked_reason, read_history
from headway.runtime.service import Service

_EVERY = timedelta(minutes=1)
_NEAR = 0.85
_WORDS = re.compile(r"[^a-z0-9]+")
_SAID = 10
"""Ids that the history names."""


def nearest_type(event_type: str, known: Iterable[str]) -> str:
    """Give the known type that was perhaps meant; empty if none is close.

    >>> nearest_type("order_placd", ["OrderPlaced", "OrderPaid"])
    'OrderPlaced'
    """
    if event_type == MALFORMED:
        return ""
    by_word = {_plain(each): each for each in known if each != event_type}
    near = nearest(_plain(event_type), by_word, cutoff=_NEAR)
    return by_word[near] if near else ""


def _plain(event_type: str) -> str:
    return _WORDS.sub("", event_type.lower())


class UnroutedNotice:
    """Tells once a minute and type that events are kept as unrouted.

    Args:
        unrouted: Knows the types that have queues.
        clock: For the minute.
        tell: Is given the fact.
        where: The engine, for a program that publishes from outside.
    """

    def __init__(
        self, unrouted: Unrouted, clock: Clock, tell: Callable[[Fact], None], *, where: str = ""
    ) -> None:
        self._unrouted = unrouted
        self._clock = clock
        self._tell = tell
        self._where = where
        self._told: dict[str, datetime] = {}
        self._dropped: set[str] = set()
        """Types that need no consumer, and were looked at."""

    def due(self, event_types: Iterable[str]) -> Sequence[str]:
        """Give those types of which it was not told for a minute; they count as told now."""
        now = self._clock.now()
        self._told = {each: at for each, at in self._told.items() if now - at < _EVERY}
        due = [each for each in sorted(event_types) if each not in self._told]
        self._told.update(dict.fromkeys(due, now))
        return due

    def first(self, messages: Iterable[Message]) -> Sequence[str]:
        """Give the types that need no consumer and were never looked at; they are from now on."""
        found = {each.event_type for each in messages if not each.needs_consumer} - self._dropped
        self._dropped |= found
        return sorted(found)

    async def tell_of_dropped(self, event_types: Sequence[str], service: str) -> None:
        """Tell of each of these types that no service takes, if another was perhaps meant."""
        known = await self._taken_types()
        for event_type in event_types:
            meant = "" if event_type in known else nearest_type(event_type, known)
            if meant:
                self._tell(
                    EventsUnrouted(service=service, event_type=event_type, meant=meant, kept=False)
                )

    async def tell_of(self, event_types: Sequence[str], service: str = "") -> None:
        """Tell of each of these types, with the type that was perhaps meant."""
        if not event_types:
            return
        known = await self._taken_types()
        for event_type in event_types:
            self._tell(
                EventsUnrouted(
                    service=service,
                    event_type=event_type,
                    meant=nearest_type(event_type, known),
                    where=self._where,
                )
            )

    async def _taken_types(self) -> Sequence[str]:
        try:
            return await self._unrouted.taken_types()
        except Exception:  # noqa: BLE001 (the events are published: only the hint is missing)
            return ()


def tell_of_routed(services: Sequence[Service], tell: Callable[[Fact], None]) -> OnStep:
    """Give what tells of events that were unrouted, and that these services receive now."""

    def on_routed(routed: Mapping[str, int]) -> None:
        for service in services:
            for _, event_type in service.subscriptions:
                if count := routed.get(event_type):
                    tell(EventsRouted(service=service.name, event_type=event_type, count=count))

    return on_routed


@dataclass(frozen=True, slots=True, kw_only=True)
class UnroutedType:
    """The unrouted events of one type."""

    event_type: str
    events: int
    oldest: datetime | None
    """When the oldest was published."""
    meant: str
    """A type with a queue whose name is close; empty: there is none."""


@dataclass(slots=True, kw_only=True)
class UnroutedChange:
    """What came of `route` or `purge`; in a dry run, what would come of it."""

    what: str
    dry_run: bool
    chosen: Mapping[str, int]
    """Events that were selected when it began, by type."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Selected types that still have no queue, each with the type that was perhaps meant."""
    missing: Sequence[str] = ()
    """Types or ids that were asked for, and of which no event is unrouted."""
    done: int = 0
    """Of the selected events, those that were moved or removed."""
    gone: int = 0
    """Of the selected events, those that a service or another operator moved or removed first."""
    stayed: int = 0
    """Of the selected events, those that no queue took: they are still unrouted."""

    def facts(self) -> Mapping[str, Any]:
        """Give what the history keeps."""
        return {"chosen": sum(self.chosen.values()), "done": self.done, "gone": self.gone}


class UnroutedEvents:
    """Unrouted events, as an operator works on them.

    Args:
        engine: Where they are.
        clock: For the history.
        chance: Names changes in the history.
        who: Who decides, for the history.
    """

    def __init__(
        self, engine: Engine, clock: Clock, chance: Chance, *, who: str = "a program"
    ) -> None:
        self._unrouted = engine.unrouted
        self._operator = Operator(who, engine.history, clock, chance)
        self._history_without_store = engine.history_without_store

    async def list(self) -> Sequence[UnroutedType]:
        """Count unrouted events by type, with the age of the oldest."""
        counts = await self._unrouted.counts()
        if not counts:
            return []
        known, oldest = await self._unrouted.taken_types(), await self._unrouted.oldest()
        return [
            UnroutedType(
                event_type=event_type,
                events=events,
                oldest=oldest.get(event_type),
                meant=nearest_type(event_type, known),
            )
            for event_type, events in sorted(counts.items())
        ]

    async def show(
        self, event_type: str | None = None, *, limit: int = 10
    ) -> Sequence[UnroutedEvent]:
        """Give unrouted events, the oldest first, and leave them where they are."""
        types = None if event_type is None else [event_type]
        return await self._unrouted.read(limit, event_types=types)

    async def route(
        self,
        event_types: Sequence[str] | None = None,
        *,
        reason: str = "",
        dry_run: bool = False,
    ) -> UnroutedChange:
        """Move events whose type has a queue by now. A worker that starts does so by itself.

        Args:
            event_types: Only these. None: all types; an empty list is refused.
            reason: Why, for the history.
            dry_run: Change nothing, and say what would be moved.
        """
        types = checked_ids("event_types", event_types)
        chosen = await self._count(types)
        known = frozenset(await self._unrouted.taken_types() if chosen else ())
        routed = {each: events for each, events in chosen.items() if each in known}
        change = UnroutedChange(
            what="route",
            dry_run=dry_run,
            chosen=routed,
            left={each: nearest_type(each, known) for each in chosen if each not in known},
            missing=[each for each in types or () if each not in chosen],
        )
        route = partial(self._unrouted.route, list(routed))
        await self._carry_out(change, " ".join(types or ("all",)), reason, None, route)
        return change

    async def purge(
        self,
        event_types: Sequence[str] | None = None,
        *,
        ids: Sequence[str] | None = None,
        reason: str = "",
        dry_run: bool = False,
        before: Callable[[UnroutedChange], object] | None = None,
    ) -> UnroutedChange:
        """Remove events for good. Name what is removed: types, ids, or both.

        Args:
            event_types: Only events of these types. None: of any type.
            ids: Only events with these ids. None: with any.
            reason: Why, for the history.
            dry_run: Change nothing, and say what would be removed.
            before: Called with what is selected before anything is changed; if it raises, nothing
                is.
        """
        if event_types is None and ids is None:
            raise ConfigurationError(
                "Nothing is selected: name the types of the events to purge, or their ids."
            )
        types, ids = checked_ids("event_types", event_types), checked_ids("ids", ids)
        if ids is None:
            chosen = await self._count(types)
            missing = [each for each in types or () if each not in chosen]
        else:
            # Events of different types may have the same id.
            found = await self._unrouted.read(sys.maxsize, event_types=types, operations=ids)
            chosen = dict(sorted(Counter(each.event_type for each in found).items()))
            there = {each.travel.operation for each in found}
            missing = [each for each in ids if each not in there]
        change = UnroutedChange(what="purge", dry_run=dry_run, chosen=chosen, missing=missing)
        selection = [f"ids={','.join(ids[:_SAID])}{',...' * (len(ids) > _SAID)}"] if ids else []
        purge = partial(self._unrouted.purge, types, operations=ids)
        await self._carry_out(change, " ".join([*(types or ()), *selection]), reason, before, purge)
        return change

    async def history(self, limit: int = 20) -> Sequence[Document]:
        """Give the latest changes, the newest first: who, when, what, why and how many."""
        found = await read_history(self._operator.history, limit, Subject.UNROUTED)
        if self._history_without_store is not None:
            more = await read_history(self._history_without_store, limit, Subject.UNROUTED)
            found = newest_first([*found, *more])[:limit]
        return found

    async def _count(self, types: Sequence[str] | None) -> Mapping[str, int]:
        counts = await self._unrouted.counts()
        return {each: n for each, n in sorted(counts.items()) if types is None or each in types}

    async def _carry_out(
        self,
        change: UnroutedChange,
        selection: str,
        reason: str,
        before: Callable[[UnroutedChange], object] | None,
        carry_out: "_Work",
    ) -> None:
        """Make a change and record it; a dry run, and one that selects nothing, change nothing.

        A change that is interrupted completes the step that it has begun: only so does the record
        say how many events were moved or removed.
        """
        reason = checked_reason(reason)
        if change.dry_run or not change.chosen:
            change.done = sum(change.chosen.values())
            return
        if before is not None:
            before(change)
        recorded = Change(
            what=change.what,
            subject=Subject.UNROUTED,
            name=", ".join(change.chosen),
            selection=selection,
            reason=reason,
            facts=change.facts,
        )
        is_interrupted = False

        def count(gone: Mapping[str, int]) -> None:
            change.done += sum(gone.values())
            if is_interrupted:
                raise asyncio.CancelledError

        async with self._operator.recorded(recorded):
            working = asyncio.create_task(carry_out(on_step=count))
            try:
                await asyncio.wait([working])
            except asyncio.CancelledError:
                is_interrupted = True
                await asyncio.gather(working, return_exceptions=True)
                raise
            working.result()
            await self._compare(change)

    async def _compare(self, change: UnroutedChange) -> None:
        """Say what came of the selected events that this change did not move or remove itself."""
        others = max(sum(change.chosen.values()) - change.done, 0)
        if others and change.what == "route":
            left = await self._count(list(change.chosen))
            change.stayed = min(sum(left.values()), others)
        change.gone = others - change.stayed


class _Work(Protocol):
    """`Unrouted.route` or `Unrouted.purge`, with its selection."""

    def __call__(self, *, on_step: OnStep) -> Coroutine[Any, Any, int]: ...
