"""Queues that cannot be consumed from: they are gone, or somebody else has them for himself.

The broker refuses a consumer by closing its channel, and with it everything that is in hand. So the
next tries have a channel of their own, and only what is known to work comes to the one for events.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from pika.channel import Channel

from headway.adapters.rabbitmq.io import IoThread
from headway.adapters.rabbitmq.sources import Source

_PAUSE = 1.0


class Asides:
    """Tries each now and then; on the I/O thread.

    Args:
        io: The thread.
        consume: Called with a queue from which can be consumed again.
    """

    def __init__(self, io: IoThread, consume: Callable[[Source], None]) -> None:
        self._io = io
        self._consume = consume
        self._connection: Any = None
        self.names: dict[str, Source] = {}

    def keep(self, connection: Any) -> None:
        """Try on this connection from now on."""
        self._connection = connection

    def put(self, source: Source) -> None:
        self.names[source.name] = source
        self._io.later(_PAUSE, partial(self._try, source))

    def forget(self, name: str) -> None:
        self.names.pop(name, None)

    def _is_here(self, source: Source) -> bool:
        return self.names.get(source.name) is source

    def _try(self, source: Source) -> None:
        if not self._is_here(source):
            return
        if self._connection is not None and self._connection.is_open:
            self._connection.channel(on_open_callback=partial(self._ask, source))
        else:
            self._io.later(_PAUSE, partial(self._try, source))

    def _ask(self, source: Source, channel: Channel) -> None:
        found: list[bool] = []

        def consumed(_frame: object) -> None:
            found.append(True)
            channel.close()  # what has come by it goes back to the beginning of its queue

        def closed(*_reason: object) -> None:
            if not found:
                self._io.later(_PAUSE, partial(self._try, source))
            elif self._is_here(source):
                self.forget(source.name)
                self._consume(source)

        channel.add_on_close_callback(closed)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(source.name, _leave, callback=consumed)


def _leave(*_delivery: object) -> None:
    """It goes back when the channel is closed."""
