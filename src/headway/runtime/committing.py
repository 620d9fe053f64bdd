"""Commit what has ended, in groups, and tell what has become true."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from itertools import chain
from typing import TypeGuard

from headway.core.backoff import AddedJitter, Exponential
from headway.core.catalogue import TRANSACTION_CLASSIFIER, names_engine
from headway.core.document import LAST_OPERATION, LEASE_TOKEN
from headway.core.errors import (
    ConditionLostError,
    DocumentNotFoundError,
    DocumentReplacedError,
    KeyTakenError,
)
from headway.core.facts import (
    DocumentsSkipped,
    DuplicatesRecognised,
    Fact,
    LeaseLost,
    Processed,
)
from headway.core.failure import words
from headway.core.secrets import hidden
from headway.core.writes import target
from headway.ports.bus import Delivery, Message
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.commit import COMMITTED, Finish, Finisher, Outcome
from headway.runtime.attempt import Attempt, Ending
from headway.runtime.health import CONFLICT
from headway.runtime.persistence import RETRIED_AFTER, Blamed, Isolation

_LOG = logging.getLogger("headway")
_UNSETTLED = timedelta(minutes=1)
"""The pause of an event that nothing can be done with, not even to end it."""
_HELD = 20
"""Ends for which only the engine fails, that are kept to be committed later: their handlers need
not run again. More of them go back to the bus."""
_LOST_FOR = timedelta(seconds=1)
"""The pause of an event whose document another worker has taken over."""
_RERUNS = 5
_BETWEEN_RERUNS = Exponential(
    base=timedelta(milliseconds=100),
    cap=timedelta(seconds=2),
    jitter=AddedJitter(timedelta(milliseconds=100)),
)


class Committer:
    """Takes endings as they come, and gives them to the engine as fast as it takes them.

    While one group is being committed, the next one gathers: the busier, the larger the groups.
    """

    def __init__(
        self,
        finisher: Finisher,
        isolation: Isolation,
        clock: Clock,
        chance: Chance,
        *,
        rerun: Callable[[Attempt, timedelta], None],
        settled: Callable[[int], None],
        released: Callable[[Attempt], None],
        leave: Callable[[Sequence[Ending]], Awaitable[None]],
        handled: Callable[[Sequence[Attempt]], None],
        unhandled: Callable[[Ending], None],
        unrouted: Callable[[str, frozenset[str]], None],
        announced: Callable[[str, Sequence[Message]], None],
        tell: Callable[[Fact], None],
    ) -> None:
        self._finisher = finisher
        self._clock = clock
        self._chance = chance
        self._isolation = isolation
        self._rerun = rerun
        self._settled = settled
        self._released = released
        self._leave = leave
        self._handled = handled
        self._unhandled = unhandled
        self._unrouted = unrouted
        self._announced = announced
        self._tell = tell
        self._endings: list[Ending] = []
        self._free: deque[asyncio.Future[None]] = deque()
        self._committing: list[Sequence[Ending]] = []
        """Groups that are being committed."""
        self._idle = asyncio.Event()
        self._held: dict[Ending, asyncio.Task[None]] = {}
        self._again: deque[Ending] = deque()
        """Each of these is committed by itself, between two groups: so it delays none."""
        self._stopping = False

    def put(self, ending: Ending) -> None:
        """Have an ending committed."""
        self._endings.append(ending)
        if self._free:
            self._wake()

    def _wake(self) -> None:
        while self._free:
            free = self._free.popleft()
            if not free.done():
                free.set_result(None)
                break

    def release_held(self) -> None:
        """The worker stops: what waits for the engine goes back to the bus at once."""
        self._stopping = True
        for ending, waiting in tuple(self._held.items()):
            waiting.cancel()
            self._settled(-1)
            if ending.unit.record is not None:
                ending = ending.recovery.unsettled(ending, self._clock.now())  # noqa: PLW2901
            self.put(ending)
        self._held.clear()

    def holds(self, delivery: Delivery) -> bool:
        """Say whether the end of the same event is about to be committed."""
        pending = chain(self._endings, self._again, self._held, *self._committing)
        return any(each.attempt is not None and each.attempt.is_at(delivery) for each in pending)

    async def flush(self) -> None:
        """Wait until everything that was put has been committed."""
        while self._endings or self._again or self._committing:
            self._idle.clear()
            await self._idle.wait()

    async def run(self) -> None:
        """Commit until cancelled."""
        runs = [asyncio.create_task(self._run()) for _ in range(self._finisher.at_once)]
        try:
            ended, _ = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
            for run in ended:
                run.result()  # they never end by themselves: raise what ended this one
        finally:
            waiting = tuple(self._held.values())
            for task in (*runs, *waiting):
                task.cancel()
            await asyncio.gather(*runs, *waiting, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            while self._endings or self._again:
                if self._endings:
                    group, self._endings = self._endings, []
                    await self._commit(group)
                if self._again:
                    await self._commit([self._again.popleft()])
            self._idle.set()
            free = asyncio.get_running_loop().create_future()
            self._free.append(free)
            await free

    async def _commit(self, group: Sequence[Ending]) -> None:
        self._committing.append(group)
        self._take_down(group, await self._finish(group))
        self._committing.remove(group)

    async def _finish(self, group: Sequence[Ending]) -> Sequence[Finish | Blamed]:
        units = [ending.unit for ending in group]
        held = [each for each in group if each.attempt is not None and each.attempt.token]
        if held:
            for ending in held:
                # Before they are let go: whoever renews them afterwards would miss them.
                if ending.unit.record is None and ending.attempt is not None:
                    self._released(ending.attempt)
            await self._leave(held)
        finishes = await self._isolation.each("Committing", units, self._finisher.finish)
        return [
            COMMITTED if finish is COMMITTED else await self._judged(finish) for finish in finishes
        ]

    async def _judged(self, finish: Finish | Blamed) -> Finish | Blamed:
        """Say what became of a unit; Blamed: nothing yet, because of the engine."""
        if isinstance(finish, Blamed):
            return finish if finish.waits else Finish(Outcome.REFUSED, error=finish.error)
        if finish.error is None or not names_engine(finish.error):
            return finish
        # Callbacks are the user's own, and may speak to other servers. Whether it was ours that
        # refused, only a write of our own can say.
        if finish.of_body and await self._isolation.is_well():
            return finish
        return Blamed(finish.error)

    def _wait(self, waiting: Sequence[tuple[Ending, Blamed]]) -> None:
        """Have ends for which only the engine fails committed later; no other event waits."""
        until = self._clock.now() + RETRIED_AFTER
        by_service: dict[str, list[Exception]] = {}
        for ending, blamed in waiting:
            if blamed.is_guess:
                self._again.append(ending)
                continue
            by_service.setdefault(ending.recovery.service.name, []).append(blamed.error)
            # What is kept comes back as a suspect if the worker dies, and a probe keeps its queue
            # closed: neither may be kept for long.
            is_probe = ending.attempt is not None and ending.attempt.is_probe
            goes_back = (
                is_probe
                or self._stopping
                or ending.unit.delivery.returns
                or len(self._held) >= _HELD
            )
            if goes_back and ending.unit.record is not None:
                self.put(ending.recovery.unsettled(ending, until))
            else:
                self._hold(ending, RETRIED_AFTER)
        for service, errors in by_service.items():
            held = sum(each.recovery.service.name == service for each in self._held)
            self._isolation.tell_of("Committing", service, max(held, len(errors)), errors[0])

    def _hold(self, ending: Ending, pause: timedelta) -> None:
        """Have an ending committed later; until then it does not count as in hand."""

        async def later() -> None:
            await self._clock.wait(pause)
            del self._held[ending]
            self._settled(-1)
            self._again.append(ending)
            self._wake()

        self._held[ending] = asyncio.create_task(later())
        self._settled(1)

    def _take_down(self, group: Sequence[Ending], finishes: Sequence[Finish | Blamed]) -> None:
        # Nearly all of a group were handled, and there is nothing to say of each: they are told
        # together, so that an event costs no call here.
        handled: dict[int, list[Attempt]] = {}
        others: list[tuple[Ending, Finish]] = []
        waiting: list[tuple[Ending, Blamed]] = []
        settled = 0
        for ending, finish in zip(group, finishes, strict=True):
            if isinstance(finish, Blamed):
                waiting.append((ending, finish))
                continue
            if finish.outcome is Outcome.REFUSED:
                self._refused(ending, finish.error)
                continue
            settled += 1
            attempt = ending.attempt
            if attempt is not None and attempt.token:
                self._released(attempt)
            if ending.handled and attempt is not None and finish.outcome is Outcome.COMMITTED:
                handled.setdefault(id(attempt.subscription), []).append(attempt)
            announces = ending.unit.outgoing and ending.recovery.service.announced
            if ending.facts or not ending.handled or finish is not COMMITTED or announces:
                others.append((ending, finish))
        self._settled(settled)
        if waiting:
            self._wait(waiting)
        # Successes first: the letters of a group must not look like a flood before all are counted.
        for attempts in handled.values():
            self._tell_together(attempts)
        for ending, finish in others:
            self._tell_of(ending, finish)

    def _tell_of(self, ending: Ending, finish: Finish) -> None:
        attempt = ending.attempt
        if finish.outcome is Outcome.COMMITTED:
            for fact in ending.facts:
                self._tell(fact)
        elif attempt is not None:
            self._tell(_in_vain(attempt, finish.outcome))
        if finish.skipped and attempt is not None:
            self._tell(
                DocumentsSkipped(
                    service=attempt.subscription.service,
                    event_type=attempt.subscription.event_type,
                    count=finish.skipped,
                )
            )
        if finish.unrouted:
            self._unrouted(ending.recovery.service.name, finish.unrouted)
        if ending.unit.outgoing:
            self._announced(ending.recovery.service.name, ending.unit.outgoing)
        if not ending.handled or finish.outcome is not Outcome.COMMITTED:
            self._unhandled(ending)

    def _tell_together(self, attempts: Sequence[Attempt]) -> None:
        subscription = attempts[0].subscription
        self._tell(
            Processed(
                service=subscription.service,
                event_type=subscription.event_type,
                seconds=tuple([attempt.seconds for attempt in attempts]),
            )
        )
        self._handled(attempts)

    def _refused(self, ending: Ending, error: Exception | None) -> None:
        attempt = ending.attempt
        assert error is not None  # noqa: S101 (a refusal says why)
        if attempt is None:
            self._without_status(ending, error)
        elif isinstance(error, KeyTakenError):
            # Read again it finds the record of that work, and goes by another key.
            self.put(ending.recovery.handed_back(attempt))
        elif _is_lease_lost(error, attempt):
            self._lease_lost(ending, attempt)
        elif _is_overtaken(error, attempt):
            self._overtaken(ending, attempt, error.document)
        elif not ending.handled:
            self._without_status(ending, error)
        elif _is_nobodys(error, attempt):
            # Counted: a handler that does so itself would do it for ever.
            replaced = DocumentReplacedError(error.collection, error.document)
            self.put(ending.recovery.failed(attempt, replaced, self._clock.now()))
        else:
            self._not_committed(ending, attempt, error)

    def _without_status(self, ending: Ending, error: Exception) -> None:
        """Commit the same without what was refused: mostly the status of a document."""
        if ending.unit.writes:
            self.put(ending.recovery.without_status(ending, _refused_one(error, ending)))
            return
        plainer = ending.recovery.plainer(ending, error, self._clock.now())
        if plainer is not None:
            self.put(plainer)
        else:
            _LOG.error(
                "An event of %s cannot be settled: %s. It waits. Retrying in %d s.",
                ending.unit.delivery.queue,
                hidden(f"{type(error).__name__} {words(error)}"),
                _UNSETTLED.total_seconds(),
            )
            self._hold(ending, _UNSETTLED)

    def _lease_lost(self, ending: Ending, attempt: Attempt) -> None:
        """The same event is in other hands too.

        What comes of that is seen when it comes again: it has been done, or waits for them.
        """
        self._tell(_in_vain(attempt, Outcome.LOST))
        self.put(ending.recovery.postponed(attempt, self._clock.now() + _LOST_FOR))

    def _not_committed(self, ending: Ending, attempt: Attempt, error: Exception) -> None:
        """Run the handler again if another commit came first; all else is a failure of its own."""
        attempt.reruns += 1
        conflict = TRANSACTION_CLASSIFIER.classify(error).error_type == CONFLICT
        if conflict and attempt.reruns < _RERUNS:
            self._rerun(attempt, _BETWEEN_RERUNS.delay(attempt.reruns, self._chance.draw()))
        else:
            self.put(ending.recovery.failed(attempt, error, self._clock.now()))

    def _overtaken(self, ending: Ending, attempt: Attempt, document: str) -> None:
        """Another operation has taken up one of its documents: what is left is done without it.

        It is not begun with again: the two would overtake each other for ever. With a lease they
        cannot, since one waits for the other: then it comes again, and finds out whether there is
        work left.
        """
        if attempt.token:
            self._lease_lost(ending, attempt)
            return
        attempt.documents = tuple(one for one in attempt.documents if one != document)
        attempt.over = (*attempt.over, document)
        if not attempt.document_ids:
            self.put(ending.recovery.superseded(attempt, self._clock.now()))
        elif ending.handled:
            self._rerun(attempt, timedelta())
        else:
            self.put(ending.recovery.without_status(ending, document))


def _is_overtaken(error: Exception, attempt: Attempt) -> TypeGuard[ConditionLostError]:
    """Another operation has begun with it."""
    return _is_lost(error, attempt, LAST_OPERATION) and error.found is not None


def _is_lease_lost(error: Exception, attempt: Attempt) -> bool:
    """The same operation has begun with it elsewhere."""
    return _is_lost(error, attempt, LEASE_TOKEN) and error.found is not None


def _is_nobodys(error: Exception, attempt: Attempt) -> TypeGuard[ConditionLostError]:
    """No operation has it: it was replaced, reset or given up."""
    return _is_lost(error, attempt, LAST_OPERATION, LEASE_TOKEN) and error.found is None


def _is_lost(error: Exception, attempt: Attempt, *fields: str) -> TypeGuard[ConditionLostError]:
    return (
        isinstance(error, ConditionLostError)
        and error.field in fields
        and error.document in attempt.documents
    )


def _refused_one(error: Exception, ending: Ending) -> str | None:
    """Name a document whose status was refused; None: nobody knows which."""
    refused: Sequence[str] = ()
    if isinstance(error, ConditionLostError):
        refused = (error.document,)
    elif isinstance(error, DocumentNotFoundError):
        refused = error.missing
    named = {target(write) for write in ending.unit.writes}.intersection(refused)
    return min(named, default=None)


def _in_vain(attempt: Attempt, outcome: Outcome) -> Fact:
    service, event_type = attempt.subscription.service, attempt.subscription.event_type
    key = attempt.idempotency_key
    if outcome is Outcome.DUPLICATE:
        return DuplicatesRecognised(
            service=service, event_type=event_type, count=1, why="done", idempotency_key=key
        )
    return LeaseLost(service=service, event_type=event_type, idempotency_key=key)
