"""A client that knows nothing of Headway: what other people do to their broker."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from headway.testing.servers import RabbitMQ


@contextmanager
def channel_to(url: str) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        connection.close()


def declare(url: str, queue: str, arguments: Mapping[str, Any]) -> None:
    with channel_to(url) as channel:
        channel.queue_declare(
            queue, durable=True, arguments={"x-queue-type": "quorum", **arguments}
        )


def put(url: str, queue: str, body: bytes, **properties: Any) -> None:
    with channel_to(url) as channel:
        channel.confirm_delivery()
        channel.basic_publish(
            "", queue, body, pika.BasicProperties(delivery_mode=2, **properties), mandatory=True
        )


def contents(url: str, queue: str) -> list[tuple[pika.BasicProperties, bytes]]:
    """Take everything out of a queue, and give it back when it has been seen."""
    found: list[tuple[pika.BasicProperties, bytes]] = []
    with channel_to(url) as channel:
        while True:
            method, properties, body = channel.basic_get(queue)
            if method is None:
                return found
            found.append((properties, body))


async def set_policy(server: RabbitMQ, url: str, queues: str, **definition: int) -> None:
    """Set a policy, and wait until the broker has told its queues."""
    server.set_policy(url, queues, **definition)
    await asyncio.sleep(1)
