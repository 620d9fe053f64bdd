"""Send the events of claimed documents, and end their claims.

What is sent is on its way while the next page is read and claimed: the two wait for different
servers.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from headway.core.catalogue import DEFAULT_CLASSIFIER
from headway.core.errors import BrokerFullError, ConfigurationError, UnsendableError
from headway.core.facts import Fact
from headway.core.failure import Verdict
from headway.core.sweep import SweepRule
from headway.core.sweep_facts import DocumentsRequeued
from headway.ports.bus import Bus
from headway.ports.candidates import Candidates
from headway.runtime.sweep_events import Sending
from headway.runtime.sweep_pace import Stopping
from headway.runtime.sweep_refusals import Refusals

_REFUSED_IN_A_ROW = 10
"""One by one. Then it is not about single events, and the run over this collection ends."""
_LOOK_UP = 1.0
"""Seconds between looks whether to stop; once told to, so long is waited for what is sent."""

_End = Callable[[SweepRule, Sequence[str], str], Awaitable[None]]


class Dispatch:
    """Sends what one run over one collection has claimed."""

    def __init__(
        self,
        rule: SweepRule,
        candidates: Candidates,
        bus: Bus,
        *,
        token: str,
        refusals: Refusals,
        tell: Callable[[Fact], None],
    ) -> None:
        self._rule = rule
        self._candidates = candidates
        self._bus = bus
        self._token = token
        self._refusals = refusals
        self._tell = tell
        self._refused_in_a_row = 0
        self._underway: asyncio.Task[None] | None = None
        self._is_broken_off = False
        self.taken = 0
        """Claimed, and not given back: so much of the room is used up."""
        self.claims = 0
        """Claimed, and as far as is known neither sent nor given back."""
        self.requeued = 0
        self.errors: Counter[str] = Counter()

    def claimed(self, sendings: Sequence[Sending]) -> None:
        """Take note of claims that were made."""
        self.taken += len(sendings)
        self.claims += len(sendings)

    def send(self, sendings: Sequence[Sending]) -> None:
        """Have claimed events sent; what went before them has arrived."""
        if sendings:
            self._underway = asyncio.create_task(self._publish(sendings))

    async def arrived(self, stopping: Stopping) -> bool:
        """Wait until what is on its way is stored; False: told to stop, and it has not arrived.

        Then it is sent again when its claims end. A broker that takes nothing ends no process.
        """
        underway, self._underway = self._underway, None
        if underway is None:
            return not self._is_broken_off
        is_told = False
        try:
            while not (await asyncio.wait({underway}, timeout=_LOOK_UP))[0]:
                if is_told:
                    self._is_broken_off = True
                    return False
                is_told = await stopping()
            underway.result()
            return True
        finally:
            underway.cancel()

    def break_off(self) -> None:
        """Wait for nothing any more: what is not confirmed is sent again later."""
        if self._underway is not None:
            self._underway.cancel()
            self._underway = None

    async def give_back_unsent(self, sendings: Sequence[Sending]) -> None:
        """Of these nothing was sent, so they need not wait until their claims end.

        Nobody knows that of those which were claimed before.
        """
        with suppress(Exception):  # whatever a driver raises: then they do
            await self._give_back([each for each in sendings if not each.requeue.again])

    async def _give_back(self, sendings: Sequence[Sending]) -> None:
        self.taken -= len(sendings)
        await self._end(self._candidates.give_back, [each.document_id for each in sendings])

    async def _end(self, end: _End, ids: Sequence[str]) -> None:
        """End claims, one way or the other."""

        async def ask(some: Sequence[str]) -> frozenset[str]:
            await end(self._rule, some, self._token)
            return frozenset(some)

        if ids:
            self.claims -= len(await self._refusals.change(ids, ask, str))

    async def _publish(self, sendings: Sequence[Sending]) -> None:
        try:
            await self._bus.publish([each.message for each in sendings])
        except BrokerFullError:
            await self.give_back_unsent(sendings)
            raise
        except Exception as error:
            if not was_refused(error):
                raise  # perhaps it was stored: the claims stay, and are sent again when they end
            if len(sendings) > 1 and not isinstance(error, ConfigurationError):
                for each in sendings:  # whose fault it is comes out one by one
                    await self._publish([each])
                return
            await self._give_back(sendings)
            self._refuse(sendings[0], error)
            return
        self._refused_in_a_row = 0
        ids = [each.document_id for each in sendings]
        await self._end(self._candidates.published, ids)
        self.requeued += len(ids)
        self._tell(DocumentsRequeued(collection=self._rule.collection, document_ids=tuple(ids)))

    def _refuse(self, sending: Sending, error: Exception) -> None:
        """Leave one out; if it may be about more than this one, raise what it was refused for."""
        if isinstance(error, UnsendableError):
            # However many there are in a row: the bus has nothing against the others.
            self._refusals.take_down(sending.document_id, error)
            return
        self._refused_in_a_row += 1
        if isinstance(error, ConfigurationError) or self._refused_in_a_row >= _REFUSED_IN_A_ROW:
            raise error
        self.errors[type(error).__name__] += 1


def was_refused(error: Exception) -> bool:
    """Say whether an error means that nothing was stored, and not merely that nobody knows."""
    return DEFAULT_CLASSIFIER.classify(error).verdict is Verdict.PERMANENT
