"""When a worker whose queue is absent is gone, and when it is not yet."""

from collections.abc import Sequence
from datetime import timedelta

from headway.adapters.rabbitmq.absence import Absences
from headway.adapters.rabbitmq.outgoing import Outgoing
from headway.testing.clock import VirtualClock

QUARTER = timedelta(seconds=0.25)
FIVE = timedelta(seconds=5)


class Broker:
    """Says which queues are there."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.present: set[str] = set()
        self.connection = 1
        self.absences = Absences(self._send, self.clock, FIVE, lambda: self.connection)

    async def _send(self, messages: Sequence[Outgoing]) -> Sequence[bool]:
        return [each.routing_key in self.present for each in messages]

    async def gone_after(self, *tokens: str, most: int = 100) -> timedelta | None:
        """Ask four times a second; say after how long one of them was gone."""
        start = self.clock.now()
        for _ in range(most):
            if await self.absences.gone(tokens):
                return self.clock.now() - start
            self.clock.advance(QUARTER)
        return None


async def test_a_worker_is_gone_after_five_seconds_without_its_queue() -> None:
    broker = Broker()
    broker.present = {"headway.worker.alive"}
    assert await broker.gone_after("alive") is None
    assert await broker.gone_after("dead", "alive") == FIVE
    assert await broker.absences.gone(["dead", "alive"]) == {"dead"}


async def test_a_worker_that_comes_back_is_not_gone() -> None:
    broker = Broker()
    assert await broker.gone_after("slow", most=19) is None
    broker.present = {"headway.worker.slow"}
    assert await broker.gone_after("slow", most=1) is None
    broker.present = set()
    assert await broker.gone_after("slow") == FIVE


async def test_time_in_which_the_broker_did_not_answer_counts_for_nothing() -> None:
    broker = Broker()
    assert await broker.gone_after("slow", most=4) is None
    broker.clock.advance(timedelta(minutes=1))
    assert await broker.gone_after("slow", most=12) is None


async def test_after_a_new_connection_everybody_has_time_to_come_back() -> None:
    broker = Broker()
    assert await broker.gone_after("slow", most=19) is None
    broker.connection = 2
    assert await broker.gone_after("slow") == FIVE
    broker.connection = -2  # lost, and not there again
    assert await broker.gone_after("slow") is None


async def test_only_absence_that_was_watched_counts() -> None:
    broker = Broker()
    assert await broker.gone_after("slow", most=19) is None
    assert await broker.gone_after("another", most=4) is None
    assert await broker.gone_after("slow") == FIVE
