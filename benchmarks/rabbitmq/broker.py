"""The server, a virtual host for each run, and what can be asked of its queues."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pika

from headway.testing.servers.loopback import http_request
from headway.testing.servers.rabbitmq import RabbitMQ

QUEUE = "bench"
QUORUM = {"x-queue-type": "quorum"}
_LOGIN = "guest:guest"


@contextmanager
def virtual_host(server: RabbitMQ) -> Iterator[str]:
    """Give the URL of an empty virtual host, and remove it with all that was left in it."""
    url = server.create_vhost()
    name = url.rpartition("/")[2]
    try:
        yield url
    finally:
        path = f"/api/vhosts/{name}"
        status, said = http_request("DELETE", server.management_port, path, login=_LOGIN)
        if status != HTTPStatus.NO_CONTENT:
            raise RuntimeError(f"DELETE {path} was answered with {status}: {said.decode()}")


@contextmanager
def channel(url: str) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        connection.close()


def declare(url: str, queue: str = QUEUE) -> None:
    with channel(url) as open_channel:
        open_channel.queue_declare(queue, durable=True, arguments=QUORUM)


def depth(url: str, queue: str = QUEUE) -> int:
    """Say how many messages are ready; the broker answers this at once and exactly."""
    with channel(url) as open_channel:
        return int(open_channel.queue_declare(queue, passive=True).method.message_count)


def wait_for_depth(url: str, count: int, queue: str = QUEUE) -> None:
    """Wait until a backlog has come in, so that nobody is measured at the pace of a publisher."""
    until = time.monotonic() + 30
    while (found := depth(url, queue)) != count:
        if time.monotonic() > until:
            raise RuntimeError(f"{queue} should hold {count} events and holds {found}")
        time.sleep(0.05)


def check_empty(worker: str, url: str, queue: str = QUEUE, *, forgiven: int = 0) -> None:
    """Fail if an event was left, or came back because nobody had acknowledged it."""
    time.sleep(0.2)  # what a closed connection held comes back a moment later
    if (found := depth(url, queue)) > forgiven:
        raise RuntimeError(f"{worker} left {found} events of {queue} unacknowledged")
