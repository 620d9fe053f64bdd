"""The history of changes on a broker without a store: a queue that reading never empties."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from headway.adapters.rabbitmq import history as rabbitmq_history
from headway.adapters.rabbitmq import journal
from headway.adapters.rabbitmq.declaring import has_default_limit
from headway.adapters.rabbitmq.topology import HISTORY
from headway.ports.history import KEPT
from headway.testing.conformance.history import HistoryConformance
from headway.testing.ports import instant
from tests.engines.rabbitmq.by_hand import channel_to, contents, declare, put
from tests.engines.rabbitmq.engine import RabbitEngineHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")
Harness = RabbitEngineHarness


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


class TestHistory(HistoryConformance): ...


async def written(harness: Harness, number: int) -> rabbitmq_history.RabbitHistory:
    history = harness.open_parts().history
    for n in range(number):
        await history.append({"at": instant(harness.clock.now()), "n": n})
    return history


async def numbers(history: rabbitmq_history.RabbitHistory) -> list[int]:
    return [each["n"] for each in await history.latest(KEPT)]


async def test_a_history_that_was_never_written_is_empty(harness: Harness) -> None:
    assert await harness.open_parts().history.latest(10) == []


async def test_the_first_entry_makes_a_durable_bounded_queue(harness: Harness) -> None:
    history = await written(harness, 1)
    with channel_to(harness.url) as channel:
        arguments = {"x-queue-type": "quorum", "x-max-length": KEPT, "x-overflow": "drop-head"}
        if has_default_limit(channel):
            arguments["x-delivery-limit"] = -1
        channel.queue_declare(HISTORY, durable=True, arguments=arguments)  # else it is refused
    assert await numbers(history) == [0]


async def test_reading_does_not_use_up_deliveries(harness: Harness) -> None:
    declare(harness.url, HISTORY, {"x-delivery-limit": 1})
    history = await written(harness, 5)
    for _ in range(10):
        assert await numbers(history) == [4, 3, 2, 1, 0]


async def test_many_unread_entries_are_read_together_and_in_order(harness: Harness) -> None:
    declare(harness.url, HISTORY, {"x-delivery-limit": 1})
    history = await written(harness, 250)
    for _ in range(4):
        assert await numbers(history) == list(reversed(range(250)))


@pytest.mark.parametrize("after", [0, 1])
async def test_a_reader_that_dies_loses_and_repeats_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Killed before, and between, the messages that it publishes anew."""
    history = await written(harness, 5)
    real, published = journal.append, 0

    def publish(channel: BlockingChannel, queue: str, body: bytes) -> None:
        nonlocal published
        if published == after:
            raise SystemError("killed")
        published += 1
        real(channel, queue, body)

    with monkeypatch.context() as killing:
        killing.setattr(rabbitmq_history, "_LARGEST", 50)
        killing.setattr(journal, "append", publish)
        with pytest.raises(SystemError):
            await history.latest(10)
    other = harness.open_parts().history
    assert await numbers(other) == [4, 3, 2, 1, 0]
    assert await numbers(history) == [4, 3, 2, 1, 0]
    (only,) = contents(harness.url, HISTORY)  # the copies are gone, and all entries in one message
    assert len(msgspec.json.decode(only[1])) == 5


async def test_a_message_of_another_program_stays_and_disturbs_nothing(harness: Harness) -> None:
    history = await written(harness, 2)
    put(harness.url, HISTORY, b"not ours")
    assert await numbers(history) == [1, 0]
    assert await numbers(history) == [1, 0]
    assert b"not ours" in [body for _, body in contents(harness.url, HISTORY)]


async def test_only_the_newest_are_kept(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_history, "KEPT", 3)
    history = await written(harness, 5)
    assert await numbers(history) == [4, 3, 2]
