"""Read a topic of Kafka."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.processing.strategies import ProcessingStrategy
from arroyo.types import Message

_SESSION = {"session.timeout.ms": 15_000, "heartbeat.interval.ms": 3_000}
"""A consumer that was killed keeps its partitions from everybody for so long; by default, 45 s."""


def kafka_consumer(
    servers: str,
    group: str,
    overrides: Mapping[str, Any],
    *,
    logger: logging.Logger,
    stops_if_lost: bool = True,
) -> KafkaConsumer:
    """Give a consumer that begins with the oldest message, and commits what it is told to.

    Args:
        servers: Where Kafka is.
        group: Who reads.
        overrides: Options of the client that go before ours.
        logger: Hears what the client says; without one it writes to stderr.
        stops_if_lost: Raise OffsetOutOfRange where Kafka has the next message no more; else go on
            with the oldest that is there.
    """
    configuration = build_kafka_consumer_configuration(
        {},
        group,
        auto_offset_reset="earliest",
        bootstrap_servers=[servers],
        override_params={**_SESSION, **overrides, "logger": logger},
        strict_offset_reset=stops_if_lost,
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
