"""Read a topic of Kafka, and say how far that is."""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.processing.strategies import ProcessingStrategy
from arroyo.types import BrokerValue, Message

from headway.ports.clock import Clock

T = TypeVar("T")

_QUIET = timedelta(seconds=2)
_SESSION = {"session.timeout.ms": 15_000, "heartbeat.interval.ms": 3_000}
"""A consumer that was killed keeps its partitions from everybody for so long; by default, 45 s."""


def kafka_consumer(servers: str, group: str, overrides: dict[str, Any]) -> KafkaConsumer:
    """Give a consumer that begins with the oldest message, and commits what it is told to."""
    configuration = build_kafka_consumer_configuration(
        {},
        group,
        auto_offset_reset="earliest",
        bootstrap_servers=[servers],
        override_params={**_SESSION, **overrides},
        enable_auto_commit=False,
    )
    return KafkaConsumer(configuration)


class Reading:
    """Knows since when something is read and not done, by the times of the messages."""

    def __init__(self, tell: Callable[[datetime | None], None], clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._at_hand: deque[datetime] = deque()
        self._newest: datetime | None = None
        self._read_at = clock.now()

    def read(self, time: datetime) -> None:
        self._at_hand.append(time)
        self._newest, self._read_at = time, self._clock.now()
        self.say()

    def done(self, number: int) -> None:
        for _ in range(min(number, len(self._at_hand))):
            self._at_hand.popleft()
        self.say()

    def forget(self) -> None:
        """Begin anew: the partitions belong to somebody else."""
        self._at_hand.clear()

    def say(self) -> None:
        """Say until when all was offered. None: there is nothing more to read."""
        if self._at_hand:
            self._tell(self._at_hand[0])
        elif self._clock.now() - self._read_at < _QUIET:
            self._tell(self._newest)  # more may have come, and was not fetched yet
        else:
            self._tell(None)


class Entrance(ProcessingStrategy[KafkaPayload]):
    """The first step: takes the time of every message that is read."""

    def __init__(self, reading: Reading, next_step: ProcessingStrategy[KafkaPayload]) -> None:
        self._reading = reading
        self._next = next_step

    def submit(self, message: Message[KafkaPayload]) -> None:
        self._next.submit(message)  # may refuse it, and is asked again then
        if isinstance(message.value, BrokerValue):
            self._reading.read(message.value.timestamp.replace(tzinfo=UTC))

    def poll(self) -> None:
        self._reading.say()
        self._next.poll()

    def close(self) -> None:
        self._next.close()

    def terminate(self) -> None:
        self._reading.forget()
        self._next.terminate()

    def join(self, timeout: float | None = None) -> None:
        self._next.join(timeout)
        self._reading.forget()


class Exit(ProcessingStrategy[T]):
    """The step after the work: counts what is done, in the order in which it was read."""

    def __init__(
        self, reading: Reading, number_of: Callable[[T], int], next_step: ProcessingStrategy[T]
    ) -> None:
        self._reading = reading
        self._number_of = number_of
        self._next = next_step

    def submit(self, message: Message[T]) -> None:
        self._next.submit(message)
        self._reading.done(self._number_of(message.payload))

    def poll(self) -> None:
        self._next.poll()

    def close(self) -> None:
        self._next.close()

    def terminate(self) -> None:
        self._next.terminate()

    def join(self, timeout: float | None = None) -> None:
        self._next.join(timeout)
