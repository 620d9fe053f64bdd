"""Calls to an engine: wait while it is unavailable, and find the item that a call fails for.

`names_engine` says what "unavailable" means. Such an error ends no event. Any other error may be
the fault of one event: then that one is found and handed to the caller, after the engine has
accepted the same call for another event, or a write of our own.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from headway.core.backoff import Exponential
from headway.core.catalogue import DEFAULT_CLASSIFIER, names_engine
from headway.core.errors import StorageLostError
from headway.core.failure import words
from headway.core.secrets import hidden
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")
_PAUSES = Exponential(base=timedelta(milliseconds=100), cap=timedelta(seconds=5))
_SAID_AGAIN_AFTER = timedelta(seconds=30)
_FAILURES_IN_A_ROW = 16
"""Calls for smaller and smaller parts, none of which succeeded: then no more are made."""
RETRIED_AFTER = timedelta(seconds=5)
"""The pause of an item for which the engine fails while it serves all others."""
_PROBE_LEASE = timedelta(seconds=1)
_FRESH = timedelta(seconds=30)
_LOG = logging.getLogger("headway")


@dataclass(frozen=True, slots=True)
class Blamed:
    """The call fails for this item alone."""

    error: Exception
    is_guess: bool = False
    """It was not tried alone: the call had failed for too many others in a row."""

    @property
    def waits(self) -> bool:
        """The error names the engine all the same: the item has to wait, and does not end."""
        return names_engine(self.error)


class Persistent:
    """Repeats calls to an engine while it is unavailable."""

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self._clock = clock
        self._chance = chance

    async def until_available(
        self,
        what: str,
        call: Callable[[], Awaitable[T]],
        *,
        unless: Callable[[Exception], bool] | None = None,
    ) -> T:
        """Return what `call()` returns, however often it has to be called.

        StorageLostError is raised at once: this process has to end.

        Args:
            what: What is being done, such as "Opening the engine": for the log.
            call: A call that can be repeated.
            unless: Says of which errors another call would not help; those are raised.
        """
        attempts = 0
        said: datetime | None = None
        rule = ""
        while True:
            try:
                answer = await call()
            except Exception as error:
                if isinstance(error, StorageLostError) or (unless is not None and unless(error)):
                    raise
                attempts += 1
                # A quarter of chance keeps workers apart; the pauses grow from one to the next.
                pause = _PAUSES.delay(attempts, (3 + self._chance.draw()) / 4)
                now, found = self._clock.now(), DEFAULT_CLASSIFIER.classify(error).rule
                if said is None or found != rule or now - said >= _SAID_AGAIN_AFTER:
                    said, rule = now, found
                    _LOG.error(
                        "%s failed (attempt %d): %s. Retrying in %s s.",
                        what,
                        attempts,
                        _said(error),
                        f"{pause.total_seconds():.1f}".removesuffix(".0"),
                        # One traceback is enough, and an engine that is unavailable needs none.
                        exc_info=attempts == 1 and not names_engine(error),
                    )
                await self._clock.wait(pause)
            else:
                if attempts:
                    _LOG.warning("%s works again after %d failed attempts.", what, attempts)
                return answer


class Isolation(Persistent):
    """Calls for many items at once, and if that fails, for fewer, down to the item at fault."""

    def __init__(self, engine: Engine, clock: Clock, chance: Chance, token: str) -> None:
        super().__init__(clock, chance)
        self._engine = engine
        self._token = token
        self._said: dict[tuple[str, str], datetime] = {}

    async def each(
        self,
        what: str,
        items: Sequence[Item],
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
    ) -> Sequence[Answer | Blamed]:
        """Return an answer for each item; wait as long as the engine accepts nothing at all."""
        return await self.until_available(what, lambda: self._together_or_singly(items, call))

    async def is_well(self) -> bool:
        """Say whether the engine accepts a write of our own."""
        try:
            await self._probe()
        except Exception as error:  # noqa: BLE001 (whatever it is: it is no proof)
            _LOG.debug("The engine did not accept a probe: %s", hidden(words(error)))
            return False
        return True

    async def _together_or_singly(
        self,
        items: Sequence[Item],
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
    ) -> Sequence[Answer | Blamed]:
        try:
            return await call(items)
        except StorageLostError:
            raise
        except Exception:
            # Without this, every item would be tried singly on an engine that accepts none.
            if not await self.is_well():
                raise
        search = _Search(call)
        answers = await search.singly(items)
        if search.last_error is not None and not search.succeeded and not await self.is_well():
            raise search.last_error
        return answers

    def tell_of(self, what: str, service: str, waiting: int, error: Exception) -> None:
        """Say how many events of a service wait, while the engine serves others."""
        now, said = self._clock.now(), self._said.get((what, service))
        if said is None or now - said >= _SAID_AGAIN_AFTER:
            self._said[what, service] = now
            _LOG.error(
                "%s failed for events of %s (%d waiting): %s. Retrying in %d s.",
                what,
                service,
                waiting,
                _said(error),
                RETRIED_AFTER.total_seconds(),
            )

    async def _probe(self) -> None:
        if self._engine.sweeping is None:
            proven = await self._engine.bus.proven()
            if proven is None or self._clock.now() - proven > _FRESH:
                raise ConnectionError("the bus has not proved for a while that it delivers")
            return
        leases, name = self._engine.sweeping.leases, f"probe/{self._token}"
        await leases.hold(name, self._token, _PROBE_LEASE)
        await self._engine.records.dispatched([name])  # there is none: it asks for the right only
        await leases.let_go(name, self._token)


class _Search(Generic[Item, Answer]):
    """Find the items that a call fails for, by halves."""

    def __init__(self, call: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]]) -> None:
        self._call = call
        self._failures = 0
        self.succeeded = False
        self.last_error: Exception | None = None

    async def singly(self, items: Sequence[Item]) -> list[Answer | Blamed]:
        if len(items) > 1:
            half = len(items) // 2
            return [*await self._part(items[:half]), *await self._part(items[half:])]
        return await self._part(items)

    async def _part(self, items: Sequence[Item]) -> list[Answer | Blamed]:
        if self.last_error is not None and self._is_hopeless(self.last_error):
            return [Blamed(self.last_error, is_guess=True) for _ in items]
        try:
            answers = await self._call(items)
        except StorageLostError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it is told of the item)
            self._failures += 1
            self.last_error = error
            if len(items) == 1:
                return [Blamed(error)]
        else:
            self.succeeded = True
            self._failures = 0
            return list(answers)
        return await self.singly(items)

    def _is_hopeless(self, error: Exception) -> bool:
        """Say whether the engine accepts a probe, and nothing of what matters."""
        return self._failures >= _FAILURES_IN_A_ROW and names_engine(error)


def _said(error: Exception) -> str:
    return " ".join(part for part in (type(error).__name__, hidden(words(error))) if part)
