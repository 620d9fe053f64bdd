"""A connection over which something is held: when it is lost, all of that is with others again."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pika
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ChannelWrongStateError

from headway.adapters.rabbitmq.desk import Desk

T = TypeVar("T")


class LostError(ConnectionError):
    """The connection or a channel is gone, and what was held has come back to its queue."""


class Session(Desk):
    """A desk at which channels stay open from one piece of work to the next."""

    async def do(self, work: Callable[[pika.BlockingConnection], T]) -> T:
        """Run work with the connection, one after another."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._try, work)

    def _try(self, work: Callable[[pika.BlockingConnection], T]) -> T:
        try:
            return work(self.connected())
        except ChannelClosedByBroker as error:
            self.refuse_rights(error)
            raise
        except (AMQPConnectionError, ChannelWrongStateError) as error:
            self._let_go()
            raise LostError(
                f"RabbitMQ at {self.address} lost the connection over which failed queues are "
                f"read ({type(error).__name__}): nothing is lost; try again"
            ) from error
