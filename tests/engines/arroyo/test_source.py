"""How a topic is read: what Kafka has deleted before it was read, and what its client says."""

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from arroyo.backends.kafka import KafkaConsumer
from arroyo.errors import OffsetOutOfRange
from arroyo.types import Topic
from confluent_kafka import Consumer, Producer, TopicPartition

from headway.systems.uptime.arroyo.client_log import ClientLog
from headway.systems.uptime.arroyo.offsets import LostOffset, lost_offsets
from headway.systems.uptime.arroyo.source import kafka_consumer
from headway.testing.clock import VirtualClock
from headway.testing.servers import wait_until
from headway.testing.servers.loopback import free_port

pytestmark = pytest.mark.timeout(60)

TOPIC, GROUP = "results", "readers"
WITHIN = timedelta(seconds=30)


@pytest.fixture
def servers() -> Iterator[str]:
    """A topic of two results, of which the group has read more than there are."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    servers = f"{broker.host}:{broker.port}"
    for _ in range(2):
        producer.produce(TOPIC, b"result", partition=0)
    assert producer.flush(10) == 0
    group = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    group.commit(offsets=[TopicPartition(TOPIC, 0, 1000)], asynchronous=False)
    group.close()
    yield servers
    producer.flush(1)


def reading(servers: str, *, stops_if_lost: bool) -> tuple[KafkaConsumer, logging.Logger]:
    logger = ClientLog(servers, VirtualClock(), option="--kafka").logger
    consumer = kafka_consumer(servers, GROUP, {}, logger=logger, stops_if_lost=stops_if_lost)
    consumer.subscribe([Topic(TOPIC)])
    return consumer, logger


def test_what_is_gone_stops_the_reading_and_is_named(servers: str) -> None:
    consumer, logger = reading(servers, stops_if_lost=True)
    try:
        with pytest.raises(OffsetOutOfRange):
            wait_until(lambda: consumer.poll(0.2) is not None, WITHIN)
        found = lost_offsets(servers, GROUP, TOPIC, logger, {})
    finally:
        consumer.close()
    assert found == [LostOffset(0, 1000, 0, 2)]


def test_it_can_go_on_with_the_oldest_that_is_there_and_that_is_said(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, _ = reading(servers, stops_if_lost=False)
    seen: list[bytes] = []

    def read() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            seen.append(message.payload.value)
        return len(seen) == 2

    try:
        assert wait_until(read, WITHIN)
    finally:
        consumer.close()
    assert "offset reset" in caplog.text


def test_a_client_whose_kafka_is_away_writes_one_line_and_nothing_to_stderr(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    servers = f"127.0.0.1:{free_port()}"
    consumer, _ = reading(servers, stops_if_lost=True)
    try:
        assert wait_until(lambda: consumer.poll(0.2) is not None or bool(caplog.records), WITHIN)
        for _ in range(5):
            consumer.poll(0.2)
    finally:
        consumer.close()
    (line,) = (each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)
    assert servers in line
    assert capfd.readouterr().err == ""
