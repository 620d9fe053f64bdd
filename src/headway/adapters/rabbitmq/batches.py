"""What one caller publishes, and waits for."""

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence

from headway.adapters.rabbitmq.outgoing import Outgoing
from headway.core.errors import NotPublishedError

_FORGIVEN = 3


class Batch:
    """Messages that one caller waits for."""

    __slots__ = (
        "error",
        "frames",
        "future",
        "is_sent",
        "left",
        "loop",
        "losses",
        "messages",
        "refused",
        "routed",
        "waits_since",
        "withdrawn",
    )

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        count = len(messages)
        self.messages = messages
        self.frames: dict[int, bytes] | None = None
        """What can be sent, by position; None: it is not known yet whether all of them can be."""
        self.refused: set[int] = set()
        """Positions of those that the broker did not store."""
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[bool]] = self.loop.create_future()
        self.left = count
        self.routed = [True] * count
        self.error: Exception | None = None
        self.withdrawn = False
        self.is_sent = False
        """Some of it was written: whether that is stored, only the broker knows."""
        self.losses = 0
        self.waits_since = time.monotonic()

    def lost(self) -> None:
        """Its connection is gone; whoever has lost several does not wait anew for each."""
        self.losses += 1
        if self.losses <= _FORGIVEN:
            self.waits_since = time.monotonic()

    def one_less(self) -> None:
        self.left -= 1
        if not self.left:
            self.loop.call_soon_threadsafe(self._answer)

    def stored(self, unknown: Collection[int] = ()) -> frozenset[int]:
        """Give the positions of what a queue took, if all but the unknown ones were answered."""
        return frozenset(
            index
            for index, routed in enumerate(self.routed)
            if routed and index not in self.refused and index not in unknown
        )

    def fail(self, error: Exception) -> None:
        self.withdrawn = True
        self.error = error
        self.loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            if not self.withdrawn and isinstance(self.error, NotPublishedError):
                self.error.stored = self.stored()
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.routed)


Item = tuple[Batch, int, Outgoing]


def late(items: Iterable[Item], since: float) -> list[Batch]:
    """Give the batches that have waited since then, each once."""
    batches = {id(batch): batch for batch, _, _ in items}
    return [each for each in batches.values() if each.waits_since < since and not each.withdrawn]
