"""Commands on a broker that cannot be used: each cause has its own words, told at once."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from typer.testing import CliRunner

from headway import Event, Service, Work, connect
from headway.apps.cli.refusals import said_in_one_line
from headway.testing.proxy import Fault, Proxy
from headway.testing.servers import RabbitMQ
from tests.commands import app

WRONG_SETTINGS, UNAVAILABLE = 2, 3
LOGIN = "guest:guest"
OPEN = bytes([0, 10, 0, 40])
"""The method with which a client asks for a virtual host."""


@contextmanager
def port_of(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """Listen as another program would, and treat every client so; give the port."""
    clients: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    clients.append(client)
                    answer(client)

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        for client in clients:
            client.close()


def published(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, str, float]:
    """Give the exit code of `headway publish`, what it said, and how long it took."""
    began = time.monotonic()
    with pytest.raises(SystemExit) as end, said_in_one_line():
        CliRunner().invoke(app, ["publish", "Order", "{}", "--bus", url], catch_exceptions=False)
    took = time.monotonic() - began
    said = capsys.readouterr().err
    assert said.startswith("headway: ")
    assert len(said.splitlines()) == 1, said
    assert "wrong-pass" not in said
    return end.value.code, said, took


def test_a_wrong_password_is_told_at_once_with_user_and_host(
    rabbitmq_server: RabbitMQ, rabbitmq_vhost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, took = published(rabbitmq_vhost.replace(LOGIN, "guest:wrong-pass"), capsys)
    assert code == WRONG_SETTINGS
    address = f"127.0.0.1:{rabbitmq_server.port}"
    assert f"RabbitMQ at {address} does not accept the login of user 'guest'" in said
    assert "RABBITMQ_PASSWORD" in said
    assert took < 3


def test_a_virtual_host_that_is_not_there_is_told_at_once(
    rabbitmq_server: RabbitMQ, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"amqp://{LOGIN}@127.0.0.1:{rabbitmq_server.port}/not-there"
    code, said, took = published(url, capsys)
    assert code == WRONG_SETTINGS
    assert "has no virtual host 'not-there'" in said
    assert "rabbitmqctl add_vhost not-there" in said
    assert took < 3


def test_a_virtual_host_that_is_forbidden_is_told_at_once(
    rabbitmq_server: RabbitMQ, rabbitmq_vhost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = rabbitmq_server.create_user(rabbitmq_vhost, configure="", write="", read="")
    code, said, took = published(f"{url.rpartition('/')[0]}/%2F", capsys)
    assert code == WRONG_SETTINGS
    assert "does not let user 'user_" in said
    assert "rabbitmqctl set_permissions -p / user_" in said
    assert took < 3


@pytest.mark.parametrize("sent", [b"PLAIN", OPEN], ids=["login", "virtual host"])
def test_broker_that_dies_during_the_login_is_unavailable_and_refuses_nothing(
    sent: bytes, rabbitmq_server: RabbitMQ, rabbitmq_vhost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Proxy("127.0.0.1", rabbitmq_server.port) as proxy:
        proxy.when(sent, Fault.CUT_BEFORE, times=None)
        code, said, _ = published(proxy.through(rabbitmq_vhost), capsys)
    assert code == UNAVAILABLE
    assert "is not available: it closed the connection during the login" in said


def test_a_port_at_which_nothing_listens_is_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with port_of(lambda _: None) as port:
        pass
    code, said, took = published(f"amqp://{LOGIN}@127.0.0.1:{port}/", capsys)
    assert code == UNAVAILABLE
    assert f"RabbitMQ at 127.0.0.1:{port} is not available: nothing listens there" in said
    assert took < 3


def test_a_host_that_is_not_known_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = published(f"amqp://{LOGIN}@no-such-host.invalid/", capsys)
    assert code == UNAVAILABLE
    assert "the name of the host cannot be resolved" in said


def test_a_port_that_hangs_up_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As a port of TLS does, which takes what comes for a broken handshake."""
    with port_of(lambda client: client.close()) as port:
        code, said, took = published(f"amqp://{LOGIN}@127.0.0.1:{port}/", capsys)
    assert code == UNAVAILABLE
    assert "something listens there, and hangs up on AMQP" in said
    assert "amqps://" in said
    assert took < 3


@pytest.mark.parametrize("bytes_sent", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_speaks_no_amqp_is_told_within_seconds(
    bytes_sent: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """A silent one, or the broker's management."""
    with port_of(lambda client: client.sendall(bytes_sent)) as port:
        code, said, took = published(f"amqp://{LOGIN}@127.0.0.1:{port}/", capsys)
    assert code == UNAVAILABLE
    assert "something listens there, and did not answer in AMQP within 5 s" in said
    assert "15672" in said
    assert took < 8


@pytest.mark.parametrize("words", [("failed", "list"), ("verify",)])
def test_commands_that_only_look_are_told_the_same(
    words: tuple[str, ...], rabbitmq_vhost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for url, code, said in (
        (
            rabbitmq_vhost.replace(LOGIN, "guest:wrong-pass"),
            WRONG_SETTINGS,
            "login of user 'guest'",
        ),
        (f"amqp://{LOGIN}@127.0.0.1:1/", UNAVAILABLE, "nothing listens there"),
    ):
        with pytest.raises(SystemExit) as end, said_in_one_line():
            CliRunner().invoke(app, [*words, "--bus", url], catch_exceptions=False)
        assert end.value.code == code
        assert said in capsys.readouterr().err


async def test_many_events_of_which_one_cannot_be_sent_say_how_many_are_published(
    rabbitmq_server: RabbitMQ, rabbitmq_vhost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Service("shop")

    @shop.on("Order")
    async def take(event: Event, work: Work) -> None:
        """Runs elsewhere."""

    async with connect(rabbitmq_vhost) as headway:
        await headway.declare(shop)
    lines = ["{}", "{}", json.dumps({"large": "x" * 20_000}), "{}"]
    rabbitmq_server.limit_messages(10_000)
    words = ["publish", "Order", "-", "--bus", rabbitmq_vhost]

    def publish() -> object:
        with pytest.raises(SystemExit) as end, said_in_one_line():
            CliRunner().invoke(app, words, input="\n".join(lines), catch_exceptions=False)
        return end.value.code

    try:
        assert await asyncio.to_thread(publish) == WRONG_SETTINGS
    finally:
        rabbitmq_server.limit_messages()
    said = capsys.readouterr().err
    assert "a message for 'order' cannot be sent" in said
    assert "; 2 of 4 events were published" in said
