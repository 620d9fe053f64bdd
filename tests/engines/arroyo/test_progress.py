"""How far a group has come in a topic, by what Kafka says of both."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headway.systems.uptime.arroyo.progress import NOTHING, GroupProgress
from headway.testing.clock import VirtualClock
from headway.testing.servers import wait_until

pytestmark = pytest.mark.timeout(60)

TOPIC, GROUP, SECOND = "results", "readers", timedelta(seconds=1)


@pytest.fixture
def producer() -> Iterator[Producer]:
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    yield producer
    producer.flush(1)


@pytest.fixture
def servers(producer: Producer) -> str:
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    return f"{broker.host}:{broker.port}"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def progress(servers: str, clock: VirtualClock) -> Iterator[GroupProgress]:
    progress = GroupProgress(servers, GROUP, TOPIC, clock)
    yield progress
    progress.close()


def send(producer: Producer, partition: int) -> None:
    producer.produce(TOPIC, b"result", partition=partition)
    assert producer.flush(10) == 0


def commit(servers: str, partition: int, offset: int) -> None:
    reader = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    reader.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False)
    reader.close()


def test_it_says_until_when_everything_is_committed_and_nothing_where_all_is(
    producer: Producer, servers: str, clock: VirtualClock, progress: GroupProgress
) -> None:
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


def test_while_kafka_is_away_the_time_stands_still(
    producer: Producer,
    servers: str,
    clock: VirtualClock,
    progress: GroupProgress,
    *,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(producer, 0)
    commit(servers, 0, 1)
    progress.ask()
    assert progress() is None
    last = clock.now()
    clock.advance(SECOND)
    with monkeypatch.context() as patch:
        patch.setattr(progress, "_offsets", _nobody_answers)
        progress.ask()
        progress.ask()
    assert progress() == last
    assert len(caplog.records) == 1
    progress.ask()
    assert progress() is None


def _nobody_answers() -> None:
    raise KafkaException("all brokers are down")


def test_it_asks_by_itself_until_it_is_closed(producer: Producer, servers: str) -> None:
    send(producer, 0)
    commit(servers, 0, 1)
    progress = GroupProgress(servers, GROUP, TOPIC, VirtualClock())
    told: list[datetime | None] = []
    progress.keep_asking(timedelta(milliseconds=10), told.append)
    assert wait_until(lambda: bool(told), timedelta(seconds=20))
    assert told[0] is progress() is None
    progress.close()

    def is_asking() -> bool:
        return any(each.name == "headway-kafka-progress" for each in threading.enumerate())

    assert wait_until(lambda: not is_asking(), timedelta(seconds=20))
