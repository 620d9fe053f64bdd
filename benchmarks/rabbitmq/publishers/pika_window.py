"""The limit: pika with up to a thousand events that the broker has not confirmed yet."""

import sys
import time
from typing import Any

import pika

from benchmarks.rabbitmq.broker import QUEUE, declare
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.confirms import Confirms
from benchmarks.rabbitmq.tally import BODY

_WINDOW = 1_000


class Window:
    """Publishes as confirms come in."""

    def __init__(self, url: str, count: int) -> None:
        self.each = 0.0
        self._count = count
        self._sent = 0
        self._began = 0
        self._confirms: Confirms[None] = Confirms()
        self._properties = pika.BasicProperties(delivery_mode=2)
        self.connection = pika.SelectConnection(
            pika.URLParameters(url), on_open_callback=self._opened, on_close_callback=self._closed
        )

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._confirmed, callback=self._begin)

    def _begin(self, _answer: Any) -> None:
        self._began = time.perf_counter_ns()
        self._publish()

    def _publish(self) -> None:
        while self._sent < self._count and len(self._confirms) < _WINDOW:
            self._channel.basic_publish("", QUEUE, BODY, self._properties, mandatory=True)
            self._confirms.published(None)
            self._sent += 1

    def _confirmed(self, frame: Any) -> None:
        self._confirms.confirmed(frame)
        self._publish()
        if not self._confirms:
            self.each = (time.perf_counter_ns() - self._began) / self._count
            self.connection.close()

    def _closed(self, connection: Any, _reason: Any) -> None:
        connection.ioloop.stop()


def main(url: str, count: int) -> None:
    declare(url)
    window = Window(url, count)
    window.connection.ioloop.start()
    report(each=window.each)


main(sys.argv[1], int(sys.argv[2]))
