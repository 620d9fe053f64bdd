"""The queue that is there for as long as a worker is connected; its beats come by it."""

from functools import partial
from typing import Any

import pika
from pika.channel import Channel

from headway.adapters.rabbitmq.absence import QUESTION
from headway.adapters.rabbitmq.io import IoThread

_LOCKED_PAUSE = 1.0


class Alive:
    """Keeps one channel for it on the present connection; on the I/O thread.

    A channel of its own: if the broker still believes in the connection before this one, the queue
    is locked, and the events must not wait for that.
    """

    def __init__(self, io: IoThread, queue: str) -> None:
        self._io = io
        self.queue = queue
        self.beats = 0
        """Messages that came to the queue."""
        self._connection: Any = None

    def keep(self, connection: Any) -> None:
        """Have the queue on this connection, and on no other."""
        if connection is not self._connection:
            self._connection = connection
            self._open(connection)

    def _open(self, connection: Any) -> None:
        if connection is self._connection and connection.is_open:
            connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: Channel) -> None:
        channel.add_on_close_callback(self._closed)
        channel.queue_declare(self.queue, exclusive=True, auto_delete=True)
        channel.basic_consume(self.queue, self._beat, auto_ack=True)

    def _closed(self, channel: Channel, _reason: Exception) -> None:
        self._io.later(_LOCKED_PAUSE, partial(self._open, channel.connection))

    def _beat(
        self,
        channel: Channel,
        _method: pika.spec.Basic.Deliver,
        _properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        # Others ask whether the queue is there: that proves nothing about this connection.
        if channel.connection is self._connection and body != QUESTION:
            self.beats += 1
