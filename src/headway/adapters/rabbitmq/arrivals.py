"""What arrives over one channel.

When the channel is lost, so is its object: bytes that an old connection still brings are of no use,
because what they hold has come back to its queue.
"""

from collections.abc import Callable

from headway.adapters.rabbitmq.sources import Arrived, Source


class Arrivals:
    """The consumers of a channel, and the account of its deliveries; on the I/O thread.

    Args:
        epoch: The number of the channel.
        news: Called for the first that arrives, until `rest`.
    """

    __slots__ = ("_news", "_woken", "consumers", "epoch", "known", "over")

    def __init__(self, epoch: int, news: Callable[[], None]) -> None:
        self.epoch = epoch
        self.over = False
        """The channel is lost."""
        self.consumers: dict[bytes, Source] = {}
        """By their tags."""
        self.known: set[bytes] = set()
        """Those of them that the broker has not confirmed to be cancelled."""
        self._news = news
        self._woken = False

    def add(self, tag: str, source: Source) -> None:
        self.consumers[tag.encode()] = source
        self.known.add(tag.encode())

    def arrive(self, consumer: bytes, tag: int, properties: bytes, body: bytes) -> None:
        if self.over:
            return
        source = self.consumers[consumer]
        source.arrived.append(Arrived(self.epoch, tag, source.name, properties, body))
        if not self._woken:
            self._woken = True
            self._news()

    def rest(self) -> None:
        """Whoever waits has been told."""
        self._woken = False
