"""One connection with one channel, made again whenever it is lost.

Everything here runs on the I/O thread.
"""

import logging
import time
from collections.abc import Callable

import pika
from pika.channel import Channel
from pika.exceptions import StreamLostError

from headway.adapters.rabbitmq.connecting import refusal, words
from headway.adapters.rabbitmq.io import IoThread
from headway.adapters.rabbitmq.reading import Connection
from headway.core.secrets import hidden

_LOG = logging.getLogger("headway")
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_STEADY = 1.0
"""Seconds for which a channel has to be open, before the next pause is short again."""


class Link:
    """Keeps a channel open, and says when there is a new one and when it is gone.

    Args:
        io: Where it runs.
        parameters: Of the connection.
        purpose: What the log calls it.
        opened: Called with every new channel.
        lost: Called with the reason when a channel that was opened is gone.
        refused: Called with the reason when there is no connection; True: it has told the callers,
            and the log need not.
        unblocked: Called when the broker takes messages again.
    """

    def __init__(
        self,
        io: IoThread,
        parameters: pika.ConnectionParameters,
        *,
        purpose: str,
        opened: Callable[[Channel], None],
        lost: Callable[[Exception], None],
        refused: Callable[[Exception], bool] = lambda _reason: False,
        unblocked: Callable[[], None] = lambda: None,
    ) -> None:
        self._io = io
        self._parameters = parameters
        self._purpose = purpose
        self._opened = opened
        self._lost = lost
        self._tell_refused = refused
        self._unblocked = unblocked
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._pause = _FIRST_PAUSE
        self._opened_at = 0.0
        self._gone_since: float | None = None
        self._told: set[str] = set()
        """What was said of this outage: a lost connection may become a refused login."""
        self._closing: Callable[[], None] | None = None
        self.blocked_since: float | None = None
        """Since when the broker has no memory or disk left, and takes nothing."""

    @property
    def blocked(self) -> bool:
        return self.blocked_since is not None

    @property
    def address(self) -> str:
        return f"{self._parameters.host}:{self._parameters.port}"

    def connect(self) -> None:
        if self._closing is not None:
            return
        self._connection = Connection(
            self._parameters,
            on_open_callback=self._connected,
            on_open_error_callback=self._refused,
            on_close_callback=self._disconnected,
            custom_ioloop=self._io.loop,
        )

    def close(self, closed: Callable[[], None]) -> None:
        """Send what has been written, and let go."""
        self._closing = closed
        connection = self._connection
        if connection is None:
            closed()
        elif connection.is_open and self.blocked:
            # The broker reads nothing from here, not even a farewell. pika shows no other way.
            connection._terminate_stream(StreamLostError("let go"))  # noqa: SLF001
        elif connection.is_open:
            connection.close()
        # Otherwise it is being opened: `_connected` or `_refused` comes by.

    def renew(self, why: str) -> None:
        """Give up a connection that is there and does not do what it should."""
        connection = self._connection
        if connection is not None and connection.is_open:
            said = f"RabbitMQ at {self.address} does not do what it should: {why}"
            self._again(connection, RuntimeError(why), said)
            connection.close()  # it may never answer; nobody listens to it any more

    def _connected(self, connection: pika.SelectConnection) -> None:
        if self._closing is not None:
            connection.close()
            return
        connection.add_on_connection_blocked_callback(self._block)
        connection.add_on_connection_unblocked_callback(self._unblock)
        self._open_channel()

    def _open_channel(self) -> None:
        connection = self._connection
        if connection is not None and connection.is_open:
            connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Channel) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        self._opened_at = time.monotonic()
        if self._gone_since is not None:
            away, self._gone_since = time.monotonic() - self._gone_since, None
            self._told.clear()
            _LOG.warning(
                "RabbitMQ at %s answers again (%s), after %.1fs", self.address, self._purpose, away
            )
        self._opened(channel)

    def _channel_closed(self, channel: Channel, reason: Exception) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        self._lost(reason)
        connection = self._connection
        if connection is not None and connection.is_open and self._closing is None:
            _LOG.warning(
                "RabbitMQ at %s closed the channel (%s): %s; opening another",
                self.address,
                self._purpose,
                hidden(str(reason)),
            )
            self._io.later(self._next_pause(), self._open_channel)

    def _disconnected(self, connection: pika.SelectConnection, reason: Exception) -> None:
        said = f"RabbitMQ at {self.address} lost the connection: {words(reason)}"
        self._again(connection, reason, said)

    def _refused(self, connection: pika.SelectConnection, reason: Exception) -> None:
        why = refusal(reason, self._parameters)
        is_told = connection is self._connection and self._tell_refused(why)
        self._again(connection, why, None if is_told else str(why))

    def _again(
        self, connection: pika.SelectConnection, reason: Exception, said: str | None
    ) -> None:
        """Connect again after a pause; the log says why, if there is something to be said."""
        if connection is not self._connection:
            return
        if self._channel is not None:
            self._channel = None
            self._lost(reason)
        self.blocked_since = None
        self._connection = None
        if self._closing is not None:
            self._closing()
            return
        pause = self._next_pause()
        if said is not None and said not in self._told:
            self._gone_since = self._gone_since or time.monotonic()
            self._told.add(said)
            _LOG.warning("%s (%s); trying again until it answers", hidden(said), self._purpose)
        self._io.later(pause, self.connect)

    def _next_pause(self) -> float:
        if self._opened_at and time.monotonic() - self._opened_at >= _STEADY:
            self._pause = _FIRST_PAUSE
        self._opened_at = 0.0
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        return pause

    def _block(self, _connection: object, method: pika.frame.Method) -> None:
        self.blocked_since = self.blocked_since or time.monotonic()
        _LOG.error(
            "RabbitMQ at %s takes no messages (%s): free memory or disk space there; what has to "
            "be published waits, and nothing is lost",
            self.address,
            method.method.reason,
        )

    def _unblock(self, _connection: object, _method: object) -> None:
        self.blocked_since = None
        _LOG.warning("RabbitMQ at %s takes messages again", self.address)
        self._unblocked()
