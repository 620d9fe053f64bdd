"""How many messages of each queue a worker has delivered ahead, and of which none any more."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from headway.adapters.rabbitmq.taking import Taker
from headway.adapters.rabbitmq.topology import suspects_of
from headway.ports.clock import Clock

_FAR_LESS = 4


class Windows:
    """Grow as more is asked for; shut when nobody asks, or when far less is asked for."""

    def __init__(self, taker: Taker, clock: Clock) -> None:
        self._taker = taker
        self._clock = clock
        self._asked: dict[str, datetime] = {}
        """When each queue was last asked for."""
        self._asking: defaultdict[str, list[int]] = defaultdict(list)
        """How many are being asked for at this moment."""
        self._most: dict[str, int] = {}
        """How many of each queue were asked for, since the last look."""

    @contextmanager
    def ask(
        self, queues: Sequence[str], limit: int, held: Mapping[str, int], taken: int
    ) -> Iterator[list[str]]:
        """Have `limit` delivered of all queues together; give what to collect from.

        `taken` events are in hand; `held` says of which queues, where there are several.
        """
        number = max(len(queues), 1)
        share = -(-(limit + taken) // number)
        shares = dict.fromkeys(queues, share)
        for queue, count in held.items():
            if queue in shares:
                shares[queue] = max(share, -(-limit // number) + count)
        for queue, its in shares.items():
            self._most[queue] = max(self._most.get(queue, 0), its)
            self._asking[queue].append(its)
            self._want(queue, its)
        try:
            yield [source for queue in queues for source in (queue, suspects_of(queue))]
        finally:
            for queue, its in shares.items():
                self._asking[queue].remove(its)
            now = self._clock.now()
            self._asked.update(dict.fromkeys(queues, now))

    def _want(self, queue: str, share: int) -> None:
        self._taker.want(queue, share)
        self._taker.want(suspects_of(queue), 1)

    def shut(self, idle: timedelta) -> list[str]:
        """Name what to take no more from, because others may have nothing to do."""
        since = self._clock.now() - idle
        sources: list[str] = []
        for queue, asked in tuple(self._asked.items()):
            window, most = self._taker.window(queue), self._most.pop(queue, 0)
            is_idle = asked < since and not self._asking[queue]
            if is_idle or 0 < most * _FAR_LESS < window:
                del self._asked[queue]
                sources += [queue, suspects_of(queue)]
        return sources

    def open_again(self) -> None:
        """Have delivered what is being asked for, also of what has just been shut."""
        for queue, shares in self._asking.items():
            if shares:
                self._want(queue, max(shares))
