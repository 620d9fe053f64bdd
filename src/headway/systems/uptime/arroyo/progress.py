"""How far a group of consumers has come in a topic of Kafka, all of them together.

What one consumer has read says nothing of the partitions of the others, nor of those that nobody
has just now; and keys of all of them are looked at by everybody. Kafka knows where a topic ends and
what a group has committed, both without times. So the ends are written down with the time, again
and again: what was the end at ten, and is committed now, says that all until ten was processed.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headway.clock import Clock
from headway.logs import described

_LOG = logging.getLogger("headway")
_TIMEOUT_SECONDS = 5.0
_REMEMBERED = 3600
NOTHING = datetime(1970, 1, 2, tzinfo=UTC)
"""Until then all was processed, whatever else is not known."""


class GroupProgress:
    """Says until when all that reached a topic was processed. None: all of it was.

    Whoever calls it gets what is known, at once; `ask` finds out, and `keep_asking` does so in a
    thread. While Kafka is away, what was known last holds: time stands still for gaps then.
    """

    def __init__(self, servers: str, group: str, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,  # to ask what it committed: it never joins
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._ends: deque[tuple[datetime, Mapping[int, int]]] = deque(maxlen=_REMEMBERED)
        """Those that are not committed yet."""
        self._done_until = NOTHING
        self._has_more = True
        self._is_away = False
        self._stopped = threading.Event()
        self._is_asking = False

    def __call__(self) -> datetime | None:
        return self._done_until if self._has_more else None

    def ask(self) -> None:
        """Ask Kafka, and remember what it says."""
        now = self._clock.now()
        try:
            ends, committed = self._offsets()
        except KafkaException as error:
            if not self._is_away:
                _LOG.warning(
                    "Kafka does not say how far %s is read: %s", self._topic, described(error)
                )
            self._is_away = self._has_more = True  # for all that is known
            return
        self._is_away = False
        self._ends.append((now, ends))
        while self._ends and _is_done(self._ends[0][1], committed):
            self._done_until = self._ends.popleft()[0]
        self._has_more = bool(self._ends)

    def keep_asking(
        self, every: timedelta, tell: Callable[[datetime | None], None] | None = None
    ) -> None:
        """Ask in a thread until this is closed, and tell each time what is known."""

        def ask() -> None:
            while not self._stopped.wait(every.total_seconds()):
                self.ask()
                if tell is not None:
                    tell(self())
            self._consumer.close()

        self._is_asking = True
        threading.Thread(target=ask, name="headway-kafka-progress", daemon=True).start()

    def close(self) -> None:
        """Ask no more. A thread that is just asking closes the rest when it has its answer."""
        if not (self._stopped.is_set() or self._is_asking):
            self._consumer.close()
        self._stopped.set()

    def _offsets(self) -> tuple[dict[int, int], dict[int, int]]:
        """Give for each partition where it ends, and what is processed before."""
        topics = self._consumer.list_topics(self._topic, timeout=_TIMEOUT_SECONDS).topics
        described = topics[self._topic]
        if described.error is not None:
            raise KafkaException(described.error)
        partitions = [TopicPartition(self._topic, each) for each in described.partitions]
        committed = self._consumer.committed(partitions, timeout=_TIMEOUT_SECONDS)
        ends: dict[int, int] = {}
        done: dict[int, int] = {}
        for each in committed:
            found = self._consumer.get_watermark_offsets(each, timeout=_TIMEOUT_SECONDS)
            if each.error is not None or found is None:
                raise KafkaException(each.error or KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 (its public name)
            begin, end = found
            ends[each.partition] = end
            # Without a commit its offset is negative; and what Kafka has dropped will never come.
            done[each.partition] = max(each.offset, begin)
        return ends, done


def _is_done(ends: Mapping[int, int], committed: Mapping[int, int]) -> bool:
    return all(committed.get(partition, 0) >= end for partition, end in ends.items())
