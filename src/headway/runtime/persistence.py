"""Keep asking an engine that is away, with pauses, for as long as the caller is not cancelled."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from headway.core.backoff import Exponential
from headway.core.catalogue import EVERYTHING
from headway.core.errors import StorageLostError
from headway.core.failure import words
from headway.core.secrets import hidden
from headway.ports.chance import Chance
from headway.ports.clock import Clock

T = TypeVar("T")
_PAUSES = Exponential(base=timedelta(milliseconds=100), cap=timedelta(seconds=5))
_SAID_AGAIN_AFTER = timedelta(seconds=30)


class Persistent:
    """Calls an engine until it answers. For calls that can be repeated."""

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self._clock = clock
        self._chance = chance

    async def ask(
        self, what: str, call: Callable[[], Awaitable[T]], *, unless: type[Exception] | None = None
    ) -> T:
        """Give the answer of `call()`, however often it has to be called.

        An exception of the type `unless` is raised at once, and so is StorageLostError: asking
        again would not help.
        """
        tries = 0
        said = None
        while True:
            try:
                answer = await call()
            except Exception as error:
                if isinstance(error, (StorageLostError, unless or StorageLostError)):
                    raise
                tries += 1
                now = self._clock.now()
                if said is None or now - said >= _SAID_AGAIN_AFTER:
                    said = now
                    logging.getLogger("headway").error(  # noqa: TRY400 (see below)
                        "The engine did not %s (try %d): %s; trying again until it does",
                        what,
                        tries,
                        hidden(words(error)),
                        # The same traceback again and again helps nobody, and that nobody is at the
                        # other end needs none.
                        exc_info=tries == 1 and not _is_away(error),
                    )
                # A quarter of chance keeps workers apart; the waits grow from one to the next.
                await self._clock.wait(_PAUSES.delay(tries, (3 + self._chance.draw()) / 4))
            else:
                if tries:
                    logging.getLogger("headway").warning(
                        "The engine answers again: it did %s after %d tries", what, tries + 1
                    )
                return answer


def _is_away(error: Exception) -> bool:
    return EVERYTHING.classify(error).error_type == "CONNECTION_ERROR"
