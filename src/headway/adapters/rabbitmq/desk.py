"""What is asked of the broker now and then: declaring, counting, looking into queues.

Call by call, over a blocking connection on a thread of its own. What events need all the time goes
other ways.
"""

import asyncio
import copy
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelClosedByBroker,
    ConnectionBlockedTimeout,
    StreamLostError,
)

from headway.adapters.rabbitmq.connecting import full, refusal
from headway.adapters.rabbitmq.io import descriptors_of
from headway.adapters.rabbitmq.tolerant import TolerantConnection
from headway.core.errors import ConfigurationError
from headway.ports import fork

T = TypeVar("T")
NOT_FOUND = 404
LOCKED = 405
DIFFERENT = 406
_ACCESS_REFUSED = 403
_PATIENCE = 10.0
"""Seconds to wait for a broker that has no memory or disk space left."""
_FAREWELL = 1.0
"""Seconds that the last piece of work has to come to its end, when the desk is closed."""


class Desk:
    """Runs work on a channel; a failed one takes its channel with it, and no other."""

    def __init__(self, parameters: pika.ConnectionParameters) -> None:
        self._parameters = copy.copy(parameters)
        self._parameters.blocked_connection_timeout = _PATIENCE
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-rabbitmq-desk")
        self._connection: pika.BlockingConnection | None = None
        fork.own(self)

    def in_child(self) -> None:
        if self._connection is not None:
            fork.close_in_child(descriptors_of(self._connection._impl.ioloop))  # noqa: SLF001

    @property
    def address(self) -> str:
        return f"{self._parameters.host}:{self._parameters.port}"

    async def run(self, work: Callable[[BlockingChannel], T]) -> T:
        """Run work with a new channel, one after another."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)

    async def close(self) -> None:
        letting_go = asyncio.get_running_loop().run_in_executor(self._thread, self._let_go)
        if not (await asyncio.wait({letting_go}, timeout=_FAREWELL))[0]:
            self._break_off()
        await letting_go
        self._thread.shutdown()

    def _break_off(self) -> None:
        """Have the work that waits for the broker fail: whoever asked for it does not wait."""
        connection = self._connection
        if connection is not None:
            inner = connection._impl  # noqa: SLF001 (pika shows no other way, here and below)
            end = partial(inner._terminate_stream, StreamLostError("let go"))  # noqa: SLF001
            inner.ioloop.add_callback_threadsafe(end)

    def connected(self) -> pika.BlockingConnection:
        """Give the connection; on the desk's own thread."""
        if self._connection is None or not self._connection.is_open:
            self._connection = self._connect()
        return self._connection

    def _do(self, work: Callable[[BlockingChannel], T]) -> T:
        channel = self._channel()
        try:
            return work(channel)
        except ChannelClosedByBroker as error:
            self.refuse_rights(error)
            raise
        except ConnectionBlockedTimeout as error:
            raise ConnectionError(full(self.address)) from error
        finally:
            if channel.is_open:
                with suppress(AMQPError):
                    channel.close()

    def refuse_rights(self, error: ChannelClosedByBroker) -> None:
        """Name the cure where the user has too few rights."""
        if not is_refused(error, _ACCESS_REFUSED):
            return
        user, vhost = self._parameters.credentials.username, self._parameters.virtual_host
        raise ConfigurationError(
            f"RabbitMQ at {self.address} does not let user {user!r} do this ({error.reply_text}): "
            "it needs the rights to configure, write and read: rabbitmqctl set_permissions "
            f"-p {shlex.quote(vhost)} {shlex.quote(user)} '.*' '.*' '.*'"
        ) from None

    def _channel(self) -> BlockingChannel:
        try:
            return self.connected().channel()
        except AMQPConnectionError:
            # It has been idle so long that the broker gave it up.
            self._let_go()
            return self.connected().channel()

    def _connect(self) -> pika.BlockingConnection:
        try:
            # Its way to take a connection of one's own; a global change would reach other people's.
            return pika.BlockingConnection(self._parameters, _impl_class=TolerantConnection)
        except (AMQPError, AMQPConnectorException, OSError) as error:
            raise refusal(error, self._parameters) from error

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            with suppress(AMQPError):
                connection.close()


def is_refused(error: ChannelClosedByBroker, *codes: int) -> bool:
    return int(error.reply_code) in codes
