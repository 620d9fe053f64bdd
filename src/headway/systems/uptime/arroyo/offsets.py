"""What a group has to read next, where Kafka has it no more."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

_TIMEOUT_SECONDS = 5.0


class LostOffset(NamedTuple):
    """A partition whose committed offset is not there."""

    partition: int
    committed: int
    first: int
    """The oldest that is there."""
    end: int

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.committed}, has {self.first} to {self.end}"


def lost_offsets(
    servers: str, group: str, topic: str, logger: logging.Logger, overrides: Mapping[str, Any]
) -> list[LostOffset]:
    """Find the partitions whose next message is gone; none if Kafka does not say."""
    asked = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**asked, **overrides, "logger": logger})  # it never joins the group
    try:
        described = consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic]
        partitions = [TopicPartition(topic, each) for each in described.partitions]
        committed = consumer.committed(partitions, timeout=_TIMEOUT_SECONDS)
        found = []
        for each in committed:
            first, end = consumer.get_watermark_offsets(each, timeout=_TIMEOUT_SECONDS)
            if each.offset >= 0 and not first <= each.offset <= end:
                found.append(LostOffset(each.partition, each.offset, first, end))
    except KafkaException:
        return []  # what it is asked for is only a part of a message
    finally:
        consumer.close()
    return found
