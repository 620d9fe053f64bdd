"""Admit what was taken: read it, recognise what has ended before, and tell suspects apart."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from headway.core.beginning import Beginning, Begun, How
from headway.core.catalogue import names_engine
from headway.core.document import LEASE_TOKEN, LEASE_UNTIL, STATUS, moment
from headway.core.origin import origin
from headway.core.showing import shown
from headway.core.writes import Document
from headway.ports.bus import SUSPECT_AFTER, Delivery
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.records import DoneRecord, is_same_or_done, key_after
from headway.runtime.attempt import Attempt, Ending, Refused
from headway.runtime.lease_keeping import LeaseKeeper
from headway.runtime.lease_waiters import LeaseWaiters
from headway.runtime.persistence import RETRIED_AFTER, Blamed, Isolation
from headway.runtime.recover import Recovery

CONDEMNED_AFTER = 2
"""Begins without an end, alone in its process, that make it a crash loop."""

_LOOKING_UP = "Looking up done records"
_STARTING = "Starting documents"
_ASKED_EVERY = timedelta(seconds=1)
_LOG = logging.getLogger("headway")
_MOST_NAMED = 100
_LONGEST_CHAIN = 100
"""Of work with one key that failed and was sent anew; nobody corrects an event more often."""


@dataclass(slots=True)
class Admitted:
    """What is to be done with the deliveries of one take."""

    attempts: list[Attempt] = field(default_factory=list)
    suspects: list[Attempt] = field(default_factory=list)
    waiting: list[Attempt] = field(default_factory=list)
    """For documents that others have leased."""
    endings: list[Ending] = field(default_factory=list)


class Admission:
    """Stands between the bus and the lanes."""

    def __init__(
        self,
        recoveries: Mapping[str, Recovery],
        engine: Engine,
        clock: Clock,
        *,
        leases: LeaseKeeper,
        waiters: LeaseWaiters,
        isolation: Isolation,
    ) -> None:
        self._recoveries = recoveries
        self._engine = engine
        self._clock = clock
        self._leases = leases
        self._waiters = waiters
        self._isolation = isolation
        self._live: dict[str, tuple[datetime, Collection[str]]] = {}
        """Versions that take from a queue, and when the bus was asked."""
        self._foreign: set[tuple[str, str]] = set()
        """Collections and statuses that were named."""

    async def admit(
        self, taken: Sequence[Delivery], gone: frozenset[str] | None = None
    ) -> Admitted:
        """Say what is to be done with deliveries.

        `gone` is given for those that have waited for a document: tokens of leases that hold them
        up no longer. All others wait behind those that wait already.
        """
        admitted = Admitted()
        now = self._clock.now()
        read: list[Attempt] = []
        refused: list[Refused] = []
        for delivery in taken:
            recovery = self._recoveries[delivery.queue]
            try:
                found = recovery.read(delivery, now)
            except Exception as error:  # noqa: BLE001 (an error about one event stops no other)
                found = recovery.broken(delivery, error, now)
            if isinstance(found, Attempt):  # first: nearly all are such
                read.append(found)
            elif isinstance(found, Ending):
                admitted.endings.append(found)
            else:
                refused.append(found)
        if refused:
            read += await self._refuse(refused, admitted)
        new = await self._new(read, admitted)
        superseded = await self._begin(new, gone)
        await self._look_again(new)
        now = self._clock.now()  # it may have taken a while, if the engine was unavailable
        for attempt in new:
            if (
                attempt.unfit is None
                and attempt.busy_until is None
                and attempt.refusal is None
                and not attempt.waits_for
                and attempt.delivery.returns < SUSPECT_AFTER
                and attempt not in superseded
            ):
                admitted.attempts.append(attempt)
                continue
            try:
                self._place(attempt, superseded, admitted, now)
            except Exception as error:  # noqa: BLE001 (an error about one event stops no other)
                ending = attempt.recovery.broken(attempt.delivery, error, now)
                admitted.endings.append(ending)
        return admitted

    async def _look_again(self, new: Sequence[Attempt]) -> None:
        """Find what its other taker ended between the look for its record and the begin.

        Such an event comes again, and is recognised then.
        """
        begun = [each for each in new if each.delivery.returns and each.documents]
        if not begun:
            return
        found = await self._isolation.each(_LOOKING_UP, begun, self._find)
        for attempt, record in zip(begun, found, strict=True):
            if record is not None and not isinstance(record, Blamed):
                attempt.busy_until = self._clock.now()

    async def _refuse(self, refused: Sequence[Refused], admitted: Admitted) -> list[Attempt]:
        """Leave what this version cannot read to another version that is alive, or end it.

        Gives those whose documents have to be started first, so that they show the end.
        """
        unfit: list[Attempt] = []
        asked: set[str] = set()
        for each in refused:
            queue, now = each.delivery.queue, self._clock.now()
            at, live = self._live.get(queue, (now, ()))
            # An answer of a moment ago is enough to hand an event on. To end one takes a new
            # answer: another version may have started since.
            is_new = timedelta() <= now - at < _ASKED_EVERY  # the clock may have been set back
            if queue not in asked and not (is_new and each.awaited(live)):
                look = partial(self._engine.bus.live_versions, queue)
                live = await self._isolation.until_available("Looking up live versions", look)
                now = self._clock.now()
                self._live[queue] = now, live
                asked.add(queue)
            try:
                found = each.recovery.refused(each, live, now)
            except Exception as error:  # noqa: BLE001 (an error about one event stops no other)
                found = each.recovery.broken(each.delivery, error, now)
            if isinstance(found, Attempt):
                unfit.append(found)
            else:
                admitted.endings.append(found)
        return unfit

    def _place(
        self, attempt: Attempt, superseded: set[Attempt], admitted: Admitted, now: datetime
    ) -> None:
        recovery = attempt.recovery
        if attempt.unfit is not None:
            admitted.endings.append(recovery.failed(attempt, attempt.unfit, now))
        elif attempt.waits_for:
            admitted.waiting.append(attempt)
        elif attempt.busy_until is not None:
            admitted.endings.append(recovery.postponed(attempt, attempt.busy_until))
        elif attempt.refusal is not None:
            admitted.endings.append(recovery.unfit(attempt, attempt.refusal, now))
        elif attempt in superseded:
            admitted.endings.append(recovery.superseded(attempt, now))
        elif attempt.delivery.begins < CONDEMNED_AFTER:
            admitted.suspects.append(attempt)
        else:
            admitted.endings.append(recovery.crash_loop(attempt, now))

    def _blame(self, what: str, blamed: Sequence[tuple[Attempt, Blamed]]) -> None:
        """Keep the errors of an engine that fails for these events alone."""
        waiting: dict[str, list[Exception]] = {}
        for attempt, each in blamed:
            if each.waits:
                attempt.busy_until = self._clock.now() + RETRIED_AFTER
                waiting.setdefault(attempt.subscription.service, []).append(each.error)
            else:
                attempt.unfit = each.error
        for service, errors in waiting.items():
            self._isolation.tell_of(what, service, len(errors), errors[0])

    async def _new(self, read: Sequence[Attempt], admitted: Admitted) -> Sequence[Attempt]:
        """Part what is new from what has ended before."""
        ended: set[Attempt] = set()
        looked_for = read
        for _ in range(_LONGEST_CHAIN):
            if not looked_for:
                break
            found = await self._isolation.each(_LOOKING_UP, looked_for, self._find)
            again = []
            blamed: list[tuple[Attempt, Blamed]] = []
            for attempt, record in zip(looked_for, found, strict=True):
                if record is None:
                    continue
                if isinstance(record, Blamed):
                    blamed.append((attempt, record))
                elif is_same_or_done(record, attempt.delivery.queue, attempt.travel.operation):
                    ended.add(attempt)
                    admitted.endings.append(attempt.recovery.known(attempt, record))
                else:
                    attempt.key = key_after(attempt.key, record.operation)
                    again.append(attempt)
            self._blame(_LOOKING_UP, blamed)
            looked_for = again
        return [attempt for attempt in read if attempt not in ended] if ended else read

    async def _find(self, attempts: Sequence[Attempt]) -> Sequence[DoneRecord | None]:
        records = await self._engine.records.find([attempt.key for attempt in attempts])
        return [records.get(attempt.key) for attempt in attempts]

    async def _begin(self, new: Sequence[Attempt], gone: frozenset[str] | None) -> set[Attempt]:
        """Begin with the documents of each; give those that come too late for all of theirs."""
        about = [
            attempt
            for attempt in new
            if attempt.subscription.lifecycle is not None
            and attempt.unfit is None
            and attempt.busy_until is None
        ]
        if gone is None and self._leases.is_waited_for:
            for attempt in about:
                assert attempt.subscription.lifecycle is not None  # noqa: S101 (see above)
                collection = attempt.subscription.lifecycle.collection
                attempt.waits_for = self._waiters.is_waited_for(collection, attempt.ids)
            about = [attempt for attempt in about if not attempt.waits_for]
        if not about:
            return set()
        begin = partial(self._begun, gone=gone or frozenset())
        answers = await self._isolation.each(_STARTING, about, begin)
        now = self._clock.now()
        over: set[Attempt] = set()
        blamed: list[tuple[Attempt, Blamed]] = []
        for attempt, answer in zip(about, answers, strict=True):
            if isinstance(answer, Blamed):
                blamed.append((attempt, answer))
                continue
            attempt.documents = _ids(answer, How.BEGUN)
            for one in _ids(answer, How.FOREIGN):
                self._name_foreign(attempt, one, answer[one].document)
            attempt.over = _ids(answer, How.OVER)
            attempt.missing = tuple(one for one in attempt.ids if one not in answer)
            attempt.busy_until = _busy_until(answer, now)
            if attempt.busy_until is not None:
                attempt.waits_for = _leased(answer)
            elif not attempt.document_ids:
                over.add(attempt)
            self._leases.keep(attempt)
        self._blame(_STARTING, blamed)
        return over

    def _name_foreign(self, attempt: Attempt, document_id: str, document: Document) -> None:
        """Warn once of a status that keeps a document from ever being done."""
        lifecycle, status = attempt.subscription.lifecycle, repr(document.get(STATUS))[:80]
        assert lifecycle is not None  # noqa: S101 (it has begun with its documents)
        key = (lifecycle.collection, status)
        if key in self._foreign or len(self._foreign) >= _MOST_NAMED:
            return
        self._foreign.add(key)
        _LOG.warning(
            "%s/%s has status=%s, which Headway does not know: %s runs at every event for it, and "
            "no sweep finds it. Headway knows %s. Write one of these, or keep a state of your own "
            "in another field. This is said once for each status.",
            shown(lifecycle.collection),
            shown(document_id),
            shown(status),
            origin(attempt.subscription.handler),
            ", ".join(dict.fromkeys(lifecycle.words)),
        )

    async def join(self, attempt: Attempt) -> None:
        """Begin with what has come since: its handler, which has returned, may have seen it.

        Otherwise that would be left pending, with its work done. Where it is somebody else's by
        now, or still not there, nothing changes.
        """
        answer = await self._isolation.until_available(
            "Starting documents that came late",
            partial(self._begin_late, attempt),
            unless=lambda error: not names_engine(error),
        )
        attempt.documents += _ids(answer, How.BEGUN)
        attempt.missing = tuple(one for one in attempt.missing if one not in answer)
        self._leases.keep(attempt)

    async def _begin_late(self, attempt: Attempt) -> Mapping[str, Begun]:
        beginning = self._beginning(attempt, self._clock.now())
        late = replace(beginning, ids=attempt.missing)
        (answer,) = await self._engine.documents.begin([late])
        return answer

    async def _begun(
        self, attempts: Sequence[Attempt], gone: frozenset[str]
    ) -> Sequence[Mapping[str, Begun]]:
        now = self._clock.now()
        return await self._engine.documents.begin(
            [self._beginning(attempt, now, gone) for attempt in attempts]
        )

    def _beginning(
        self, attempt: Attempt, now: datetime, gone: frozenset[str] = frozenset()
    ) -> Beginning:
        subscription, travel = attempt.subscription, attempt.travel
        lifecycle = subscription.lifecycle
        assert lifecycle is not None  # noqa: S101 (the caller looked)
        attempt.token = "" if lifecycle.lease is None else self._token(attempt)
        return Beginning(
            lifecycle=lifecycle,
            ids=attempt.ids,
            operation=travel.operation,
            now=now,
            token=attempt.token,
            deliberate=travel.requeues > 0,
            again=_has_begun(attempt),
            gone=gone,
        )

    def _token(self, attempt: Attempt) -> str:
        return self._leases.token(attempt.delivery, attempt.travel.operation)


def _has_begun(attempt: Attempt) -> bool:
    """Say whether an event comes as its own retry, or because its taker was gone.

    That one may have died before it began: then an attempt too few is counted, and not one twice.
    """
    travel = attempt.travel
    return bool(travel.failures or travel.parked or attempt.delivery.returns)


def _ids(answer: Mapping[str, Begun], how: How) -> tuple[str, ...]:
    return tuple(one for one, begun in answer.items() if begun.how is how)


def _leased(answer: Mapping[str, Begun]) -> str:
    """Name a document that another operation has leased."""
    return next(
        (
            one
            for one, begun in answer.items()
            if begun.how is How.BUSY and begun.document.get(LEASE_TOKEN) is not None
        ),
        "",
    )


def _busy_until(answer: Mapping[str, Begun], now: datetime) -> datetime | None:
    busy = [begun.document for begun in answer.values() if begun.how is How.BUSY]
    return max((moment(each.get(LEASE_UNTIL)) or now for each in busy), default=None)
