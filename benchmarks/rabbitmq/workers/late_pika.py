"""The floor of delayed retries: pika, and a queue whose messages come back after a second.

It promises what a retry has to promise: the copy is confirmed before the event is acknowledged, and
the queue dead-letters at least once.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pika

from benchmarks.rabbitmq.broker import QUEUE, QUORUM, channel, declare
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.confirms import Confirms
from benchmarks.rabbitmq.lateness import DELAY, Lateness
from benchmarks.rabbitmq.tally import LINGER

_PREFETCH = 1_000
_DELAYED = f"{QUEUE}.delayed"


class Consumer:
    """One channel that takes, puts off and acknowledges."""

    def __init__(self, url: str, lateness: Lateness, ready: Path) -> None:
        self._lateness = lateness
        self._ready = ready
        self._confirms: Confirms[int] = Confirms()
        self._properties = pika.BasicProperties(delivery_mode=2)
        self.connection = pika.SelectConnection(
            pika.URLParameters(url), on_open_callback=self._opened, on_close_callback=self._closed
        )

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, opened: Any) -> None:
        self._channel = opened
        opened.basic_qos(prefetch_count=_PREFETCH)
        opened.confirm_delivery(self._confirmed, callback=self._consume)

    def _consume(self, _answer: Any) -> None:
        self._channel.basic_consume(QUEUE, self._handle)
        self._ready.touch()

    def _handle(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        event = json.loads(body)
        if self._lateness.begins(event["event_id"], event["data"]):
            self._channel.basic_publish("", _DELAYED, body, self._properties, mandatory=True)
            self._confirms.published(method.delivery_tag)
            return
        self._channel.basic_ack(method.delivery_tag)
        if self._lateness.over:
            self.connection.ioloop.call_later(LINGER, self.connection.close)

    def _confirmed(self, frame: Any) -> None:
        for tag in self._confirms.confirmed(frame):
            self._channel.basic_ack(tag)

    def _closed(self, connection: Any, _reason: Any) -> None:
        connection.ioloop.stop()


def declare_delayed(url: str) -> None:
    arguments = {
        **QUORUM,
        "x-message-ttl": int(DELAY * 1000),
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": QUEUE,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    with channel(url) as declaring:
        declaring.queue_declare(_DELAYED, durable=True, arguments=arguments)


def main(url: str, ready: Path, failing: int, healthy: int) -> None:
    declare(url)
    declare_delayed(url)
    lateness = Lateness(failing, healthy)
    Consumer(url, lateness, ready).connection.ioloop.start()
    report(**lateness.figures())


main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
