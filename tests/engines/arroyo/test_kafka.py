"""A topic of Kafka: how far a group has read it, and what was deleted before it was read."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from arroyo.errors import OffsetOutOfRange
from arroyo.types import Topic
from confluent_kafka import Consumer, Producer, TopicPartition

from headway.systems.uptime.arroyo.client_log import ClientLog
from headway.systems.uptime.arroyo.offsets import LostOffset, lost_offsets
from headway.systems.uptime.arroyo.progress import NOTHING, GroupProgress
from headway.systems.uptime.arroyo.source import kafka_consumer
from headway.testing.clock import VirtualClock
from headway.testing.servers import wait_until

pytestmark = pytest.mark.timeout(60)

TOPIC, GROUP, SECOND = "results", "readers", timedelta(seconds=1)
WITHIN = timedelta(seconds=30)


@pytest.fixture
def producer() -> Iterator[Producer]:
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    yield producer
    producer.flush(1)


@pytest.fixture
def servers(producer: Producer) -> str:
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    return f"{broker.host}:{broker.port}"


def send(producer: Producer, partition: int) -> None:
    producer.produce(TOPIC, b"result", partition=partition)
    assert producer.flush(10) == 0


def commit(servers: str, partition: int, offset: int) -> None:
    reader = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    reader.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False)
    reader.close()


def test_it_says_until_when_everything_is_committed_and_nothing_where_all_is(
    producer: Producer, servers: str
) -> None:
    clock = VirtualClock()
    progress = GroupProgress(servers, GROUP, TOPIC, clock)
    assert progress() == NOTHING
    send(producer, 0)
    send(producer, 1)
    progress.ask()
    assert progress() == NOTHING  # who knows since when the two are there
    commit(servers, 0, 1)
    progress.ask()
    assert progress() == NOTHING
    first = clock.now()
    clock.advance(SECOND)
    send(producer, 1)
    progress.ask()
    commit(servers, 1, 1)  # all that was there a second ago
    clock.advance(SECOND)
    progress.ask()
    assert progress() == first
    commit(servers, 1, 2)
    progress.ask()
    assert progress() is None
    before = clock.now()
    clock.advance(SECOND)
    send(producer, 2)
    progress.ask()
    assert progress() == before
    progress.close()


def test_it_asks_by_itself_until_it_is_closed(producer: Producer, servers: str) -> None:
    send(producer, 0)
    commit(servers, 0, 1)
    progress = GroupProgress(servers, GROUP, TOPIC, VirtualClock())
    told: list[datetime | None] = []
    progress.keep_asking(timedelta(milliseconds=10), told.append)
    assert wait_until(lambda: bool(told), WITHIN)
    assert told[0] is progress() is None
    progress.close()

    def is_asking() -> bool:
        return any(each.name == "headway-kafka-progress" for each in threading.enumerate())

    assert wait_until(lambda: not is_asking(), WITHIN)


@pytest.mark.parametrize("stops", [True, False])
def test_what_is_gone_stops_the_reading_or_it_goes_on_with_the_oldest(
    producer: Producer, servers: str, caplog: pytest.LogCaptureFixture, *, stops: bool
) -> None:
    for _ in range(2):
        send(producer, 0)
    commit(servers, 0, 1000)  # more than there is
    logger = ClientLog(servers, VirtualClock(), option="--kafka").logger
    consumer = kafka_consumer(servers, GROUP, {}, logger=logger, stops_if_lost=stops)
    consumer.subscribe([Topic(TOPIC)])
    seen: list[bytes] = []

    def read() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            seen.append(message.payload.value)
        return len(seen) == 2

    try:
        if stops:
            with pytest.raises(OffsetOutOfRange):
                wait_until(read, WITHIN)
            found = lost_offsets(servers, GROUP, TOPIC, logger, {})
            assert found == [LostOffset(0, 1000, 0, 2)]
        else:
            assert wait_until(read, WITHIN)
            assert "offset reset" in caplog.text
    finally:
        consumer.close()
