"""Read a topic of Kafka."""

from collections.abc import Callable
from typing import Any

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.processing.strategies import ProcessingStrategy
from arroyo.types import Message

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


class Entrance(ProcessingStrategy[KafkaPayload]):
    """The first step: checks again and again whether the others can go on.

    What `check` raises ends the reading.
    """

    def __init__(
        self, check: Callable[[], None], next_step: ProcessingStrategy[KafkaPayload]
    ) -> None:
        self._check = check
        self._next = next_step

    def submit(self, message: Message[KafkaPayload]) -> None:
        self._next.submit(message)

    def poll(self) -> None:
        self._check()
        self._next.poll()

    def close(self) -> None:
        self._next.close()

    def terminate(self) -> None:
        self._next.terminate()

    def join(self, timeout: float | None = None) -> None:
        self._next.join(timeout)
