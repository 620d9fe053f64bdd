"""Which workers are gone: those whose queue has been absent for a while.

The queue of a worker is exclusive to its connection. The broker removes it at once when the process
dies, and also when only the connection is lost, or when the broker itself restarts: so a worker has
some time to come back.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pika

from headway.adapters.rabbitmq.outgoing import DIRECT, Outgoing
from headway.adapters.rabbitmq.topology import worker_queue
from headway.ports.clock import Clock

QUESTION = b"?"
"""The body of a message that only asks whether the queue is there."""
_LONGEST_STEP = 1.0
"""Seconds of absence that one answer can prove: between two answers the broker may be down."""


@dataclass(slots=True)
class _Absence:
    seconds: float
    """For how long it was watched."""
    seen: float
    """When it was last seen."""


class Absences:
    """Watches the queues of workers that others ask about.

    Args:
        send: Publishes messages, confirmed, and says whether a queue took each.
        clock: For its steady time.
        time_to_come_back: How long a worker that lost its connection has to come back.
        connection: Gives the number of the connection over which this worker consumes. Another one
            means that the broker may have restarted, and that everybody has to come back.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Outgoing]], Awaitable[Sequence[bool]]],
        clock: Clock,
        time_to_come_back: timedelta,
        connection: Callable[[], int],
    ) -> None:
        self._send = send
        self._clock = clock
        self._time_to_come_back = time_to_come_back
        self._connection = connection
        self._number = 0
        self._absent: dict[str, _Absence] = {}

    async def gone(self, tokens: Collection[str]) -> set[str]:
        """Ask for the queues of workers; give those that were absent for long enough."""
        asked = list(tokens)
        routed = await self._send(
            [
                Outgoing(DIRECT, worker_queue(each), QUESTION, pika.BasicProperties())
                for each in asked
            ]
        )
        now, number = self._clock.read().steady, self._connection()
        known = self._absent if number == self._number and number > 0 else {}
        self._number, self._absent = number, {}
        for token, is_there in zip(asked, routed, strict=True):
            if not is_there:
                before = known.get(token) or _Absence(0.0, now)
                watched = before.seconds + min(now - before.seen, _LONGEST_STEP)
                self._absent[token] = _Absence(watched, now)
        enough = self._time_to_come_back.total_seconds()
        return {token for token, absence in self._absent.items() if absence.seconds >= enough}
