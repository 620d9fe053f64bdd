"""A broker that refuses, or takes nothing: each cause is told at once, and no caller waits."""

import asyncio
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from typer.testing import CliRunner

from headway import ConfigurationError
from headway.apps.cli.refusals import said_in_one_line
from headway.errors import BrokerFullError, NotPublishedError
from headway.testing.conformance.examples import ORDERS, QUEUES, message
from headway.testing.engines import RabbitParts
from headway.testing.proxy import Fault, Proxy
from headway.testing.servers import RabbitMQ
from tests.commands import app
from tests.engines.rabbitmq.engine import RabbitEngineHarness, drained

SENDING = "headway.adapters.rabbitmq.sending._PATIENCE"
DECLARING = "headway.adapters.rabbitmq.desk._PATIENCE"
Harness = RabbitEngineHarness


# Commands

WRONG_SETTINGS, UNAVAILABLE = 2, 3
LOGIN = "guest:guest"
OPEN = bytes([0, 10, 0, 40])
"""The method with which a client asks for a virtual host."""


@contextmanager
def port_of(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Listen as another program would, and treat every client so; give the URL."""
    clients: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    clients.append(client)
                    answer(client)

        threading.Thread(target=serve, daemon=True).start()
        yield f"amqp://{LOGIN}@127.0.0.1:{server.getsockname()[1]}/"
        server.shutdown(socket.SHUT_RDWR)
        for client in clients:
            client.close()


@contextmanager
def bad_url(cause: str, server: RabbitMQ, vhost: str) -> Iterator[str]:
    """Give a URL of a broker that cannot be used for this cause."""
    if cause == "wrong password":
        yield vhost.replace(LOGIN, "guest:wrong-pass")
    elif cause == "no such virtual host":
        yield f"amqp://{LOGIN}@127.0.0.1:{server.port}/not-there"
    elif cause == "forbidden virtual host":
        url = server.create_user(vhost, configure="", write="", read="")
        yield f"{url.rpartition('/')[0]}/%2F"
    elif cause.startswith("dies at"):
        with Proxy("127.0.0.1", server.port) as proxy:
            proxy.when(OPEN if "host" in cause else b"PLAIN", Fault.CUT_BEFORE, times=None)
            yield proxy.through(vhost)
    elif cause == "nothing listens":
        with port_of(lambda _: None) as url:
            pass
        yield url
    elif cause == "no such host":
        yield f"amqp://{LOGIN}@no-such-host.invalid/"
    elif cause == "hangs up":  # as a port of TLS does, which takes it for a broken handshake
        with port_of(lambda client: client.close()) as url:
            yield url
    else:  # as the broker's management does
        with port_of(lambda client: client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as url:
            yield url


def said_by(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Give the exit code of a command that fails, and the line that it wrote."""
    with pytest.raises(SystemExit) as end, said_in_one_line():
        CliRunner().invoke(app, words, catch_exceptions=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert isinstance(end.value.code, int)
    return end.value.code, line


CAUSES = {
    "wrong password": (WRONG_SETTINGS, "'guest'.*RABBITMQ_PASSWORD", 3),
    "no such virtual host": (WRONG_SETTINGS, "rabbitmqctl add_vhost not-there", 3),
    "forbidden virtual host": (WRONG_SETTINGS, "rabbitmqctl set_permissions -p / user_", 3),
    "dies at the login": (UNAVAILABLE, "during the login", 30),
    "dies at the virtual host": (UNAVAILABLE, "during the login", 30),
    "nothing listens": (UNAVAILABLE, "nothing listens", 3),
    "no such host": (UNAVAILABLE, "no-such-host.invalid", 30),
    "hangs up": (UNAVAILABLE, "amqps://", 3),
    "speaks no AMQP": (UNAVAILABLE, "15672", 8),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_command_is_told_at_once_why_a_broker_cannot_be_used(
    rabbitmq_server: RabbitMQ,
    rabbitmq_vhost: str,
    capsys: pytest.CaptureFixture[str],
    cause: str,
) -> None:
    code, fact, seconds = CAUSES[cause]
    looks = [("failed", "list"), ("verify",)] if cause in {"wrong password", "hangs up"} else []
    with bad_url(cause, rabbitmq_server, rabbitmq_vhost) as url:
        for words in (("publish", "Order", "{}"), *looks):
            began = time.monotonic()
            found, line = said_by(capsys, *words, "--bus", url)
            assert time.monotonic() - began < seconds
            assert found == code
            assert re.search(fact, line)
            assert "wrong-pass" not in line


# Rights and logins


async def test_a_user_with_too_few_rights_is_told_the_command_that_gives_them(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    await harness.opened()
    vhost = harness.url.rpartition("/")[2]
    harness.url = rabbitmq_server.create_user(harness.url, configure="", write=".*", read=".*")
    parts = harness.open_parts()
    for asked in (
        parts.bus.open(QUEUES),
        parts.letters.queues(),
        parts.letters.read(ORDERS.failed, 1),
        parts.places.depths(),
    ):
        with pytest.raises(ConfigurationError, match=f"set_permissions -p {vhost} user_"):
            await asked


async def lose_the_login(
    harness: Harness, server: RabbitMQ, *, for_worker: bool
) -> tuple[RabbitParts, str]:
    """Give parts that were connected, and whose password was changed since; and the password."""
    harness.url = server.create_user(harness.url, configure=".*", write=".*", read=".*")
    password = harness.url.partition("://")[2].partition(":")[0]
    parts = await harness.opened(for_worker=for_worker)
    await parts.bus.publish([message("before")])
    await asyncio.to_thread(server.set_password, harness.url, "another")
    async with asyncio.timeout(10):
        while parts.bus._sender._channel is not None:  # management lists connections late
            await asyncio.to_thread(server.close_connections)
            await asyncio.sleep(0.2)
    return parts, password


async def test_a_worker_whose_password_was_changed_goes_on_when_it_is_accepted_again(
    harness: Harness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong settings would be a permanent failure of its events, and they are none."""
    parts, password = await lose_the_login(harness, rabbitmq_server, for_worker=True)
    with monkeypatch.context() as patched:
        patched.setattr(SENDING, 2.0)
        async with asyncio.timeout(20):
            with pytest.raises(NotPublishedError):
                await parts.bus.publish([message("after")])
    publishing = asyncio.create_task(parts.bus.publish([message("after")]))
    await asyncio.to_thread(rabbitmq_server.set_password, harness.url, password)
    async with asyncio.timeout(10):
        assert list(await publishing) == [1]


async def test_others_are_told_at_once_that_their_password_was_changed(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    parts, _ = await lose_the_login(harness, rabbitmq_server, for_worker=False)
    async with asyncio.timeout(4):
        with pytest.raises(ConfigurationError):
            await parts.bus.publish([message("after")])


# A broker without memory


async def test_letters_can_be_looked_at_while_the_broker_takes_nothing(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    parts, letters = await harness.with_letters(2)
    await parts.letters.read(ORDERS.failed, 9)  # what is read again has to be published anew
    await asyncio.to_thread(rabbitmq_server.run_out_of_memory)
    try:
        async with asyncio.timeout(15):
            other = harness.open_parts()
            found = {each.name: each.letters for each in await other.letters.queues()}
            assert found[ORDERS.failed] == 2
            assert list(await other.letters.read(ORDERS.failed, 9)) == letters
            await other.bus.close()
    finally:
        await asyncio.to_thread(rabbitmq_server.recover_memory)
    assert list(await parts.letters.read(ORDERS.failed, 9)) == letters


async def test_a_publisher_that_does_not_wait_for_a_full_broker_is_told(
    harness: Harness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SENDING, 1.0)
    bus = (await harness.opened(patient=False)).bus
    await asyncio.to_thread(rabbitmq_server.run_out_of_memory)
    try:
        async with asyncio.timeout(20):
            with pytest.raises(NotPublishedError) as unknown:  # it may be stored
                await bus.publish([message("a")])
            assert not isinstance(unknown.value, BrokerFullError)
            with pytest.raises(BrokerFullError):  # nothing was published
                await bus.publish([message("b")])
    finally:
        await asyncio.to_thread(rabbitmq_server.recover_memory)
    async with asyncio.timeout(20):
        await bus.publish([message("c")])
    assert set(await drained(bus, 2)) == {"a", "c"}


async def test_a_start_ends_when_a_full_broker_declares_no_queues(
    harness: Harness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DECLARING, 2.0)
    bus = harness.open_parts().bus
    await asyncio.to_thread(rabbitmq_server.run_out_of_memory)
    try:
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionError, match="memory or disk"):
                await bus.open(QUEUES)
    finally:
        await asyncio.to_thread(rabbitmq_server.recover_memory)
    await bus.open(QUEUES)
