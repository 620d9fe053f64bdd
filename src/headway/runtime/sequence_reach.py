"""How long a worker waits for an engine of sequences that is away, and when it asks again.

While patience lasts, everybody waits: the source is held. Afterwards everybody is told at once that
the engine is away, and one call in a while asks again.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from headway.core.catalogue import EVERYTHING
from headway.core.classify import Classifier
from headway.core.errors import HeadwayError
from headway.core.failure import Verdict
from headway.core.sequence_facts import SequencesAway, SequencesBack
from headway.ports.clock import Clock
from headway.ports.resequencing import SequenceWatcher

T = TypeVar("T")

_FIRST_PAUSE = timedelta(milliseconds=50)
_LONGEST_PAUSE = timedelta(seconds=1)
_KNOWN = Classifier(rules=EVERYTHING.rules, unmatched=Verdict.PERMANENT)


class SequencesAwayError(HeadwayError):
    """The engine of sequences was not reached for longer than anybody waits."""

    def __init__(self, since: datetime, error: BaseException) -> None:
        self.since = since
        super().__init__(
            f"the engine of sequences is away since {since:%H:%M:%S} "
            f"({type(error).__name__}: {error}); start it, or wait for it"
        )


class Reach:
    """Asks the engine, and remembers whether it answers."""

    def __init__(self, clock: Clock, patience: timedelta, watcher: SequenceWatcher) -> None:
        self._clock = clock
        self._patience = patience
        self._watcher = watcher
        self._since: datetime | None = None
        self._told = False
        self._ask_again = clock.now()
        self._error: BaseException | None = None

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Give the answer; SequencesAwayError: there was none for as long as patience lasts.

        A question may be asked more than once, so the same one must be answered the same way.
        """
        if self._told and self._since is not None and self._error is not None:
            if self._clock.now() < self._ask_again:
                raise SequencesAwayError(self._since, self._error)
            self._ask_again = self._clock.now() + _LONGEST_PAUSE
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = await question()
            except Exception as error:
                if not is_away(error):
                    raise
                self._failed(error)
            else:
                self._answered()
                return answer
            await self._clock.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _failed(self, error: Exception) -> None:
        now = self._clock.now()
        self._since, self._error = self._since or now, error
        if now - self._since < self._patience:
            return
        if not self._told:
            self._told = True
            self._watcher.tell(SequencesAway(error, self._patience))
        self._ask_again = now + _LONGEST_PAUSE
        raise SequencesAwayError(self._since, error) from error

    def _answered(self) -> None:
        if self._since is not None and self._told:
            self._watcher.tell(SequencesBack(self._clock.now() - self._since))
        self._since, self._told, self._error = None, False, None


def is_away(error: BaseException) -> bool:
    """Say whether an engine was not reached, or answered that it cannot serve just now."""
    return _KNOWN.classify(error).verdict in {Verdict.TRANSIENT, Verdict.UNKNOWN_OUTCOME}
