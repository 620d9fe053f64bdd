"""How long a worker waits for an engine of sequences that is away, and when it asks again.

While patience lasts, everybody waits: the source is held. Afterwards everybody is told at once that
the engine is away, and a probe in a while finds out whether it is. One that hangs answers a probe
only after seconds, so nobody waits for that either.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from headway.core.catalogue import DEFAULT_CLASSIFIER
from headway.core.classify import Classifier
from headway.core.errors import HeadwayError
from headway.core.failure import Verdict
from headway.core.sequence_facts import SequencesAway, SequencesBack
from headway.ports.clock import Clock
from headway.ports.resequencing import SequenceWatcher

T = TypeVar("T")

_FIRST_PAUSE = timedelta(milliseconds=50)
_LONGEST_PAUSE = timedelta(seconds=1)
_GLANCE = timedelta(milliseconds=100)
"""An engine that is back answers a probe sooner than this."""
_KNOWN = Classifier(rules=DEFAULT_CLASSIFIER.rules, unmatched=Verdict.PERMANENT)


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

    def __init__(
        self,
        clock: Clock,
        patience: timedelta,
        watcher: SequenceWatcher,
        probe: Callable[[], Awaitable[Any]],
    ) -> None:
        """Take a probe besides: a question that changes nothing."""
        self._clock = clock
        self._probe = probe
        self._probing: asyncio.Task[bool] | None = None
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
        if self._told and not await self._is_promising() and self._since and self._error:
            raise SequencesAwayError(self._since, self._error)
        pause = _FIRST_PAUSE
        while True:
            began = self._clock.now()
            try:
                answer = await question()
            except Exception as error:
                if not is_unavailable(error):
                    raise
                self._failed(error, began)
            else:
                self._answered()
                return answer
            await self._clock.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def close(self) -> None:
        """Wait for no probe any more."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    async def _is_promising(self) -> bool:
        """Say whether the engine has answered a probe; who begins one gives it a glance."""
        if self._probing is None:
            if self._clock.now() < self._ask_again:
                return False
            self._probing = asyncio.create_task(self._probed())
            glance = asyncio.create_task(self._clock.wait(_GLANCE))
            try:
                await asyncio.wait({self._probing, glance}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                glance.cancel()
        return self._is_back()

    def _is_back(self) -> bool:
        """Say what the probe came to; after a bad one, the next is begun in a while."""
        probing = self._probing
        if probing is None or not probing.done():  # None: somebody else has asked meanwhile
            return False
        is_back = not probing.cancelled() and probing.result()
        if not is_back:
            self._probing, self._ask_again = None, self._clock.now() + _LONGEST_PAUSE
        return is_back

    async def _probed(self) -> bool:
        try:
            await self._probe()
        except Exception as error:  # noqa: BLE001 (of any engine)
            return not is_unavailable(error)  # whoever asks is told what else is wrong
        return True

    def _failed(self, error: Exception, began: datetime) -> None:
        now = self._clock.now()
        self._since, self._error = self._since or began, error
        if now - self._since < self._patience:
            return
        if not self._told:
            self._told = True
            self._watcher.tell(SequencesAway(error, self._patience))
        self._ask_again = now + _LONGEST_PAUSE
        if self._probing is not None and self._probing.done():
            self._probing = None  # it promised too much
        raise SequencesAwayError(self._since, error) from error

    def _answered(self) -> None:
        if self._since is not None and self._told:
            self._watcher.tell(SequencesBack(self._clock.now() - self._since))
        self._since, self._told, self._error = None, False, None


def is_unavailable(error: BaseException) -> bool:
    """Say whether an engine was not reached, or answered that it cannot serve just now."""
    return _KNOWN.classify(error).verdict in {Verdict.TRANSIENT, Verdict.UNKNOWN_OUTCOME}
