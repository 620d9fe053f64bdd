import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from headway.testing.proxy import Fault, Proxy
from headway.testing.servers import wait_until

SOON = timedelta(seconds=10)
SILENCE = 0.2  # how long a client listens before it believes that nothing comes


class EchoServer(socketserver.ThreadingTCPServer):
    """Answers `ok:` and the chunk it got, while it is `willing`; remembers what it saw."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.received = b""
        self.ends: list[str] = []
        self.willing = threading.Event()
        self.willing.set()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.socket.getsockname()[1]


class _Answer(socketserver.BaseRequestHandler):
    server: EchoServer
    request: socket.socket

    def handle(self) -> None:
        try:
            while chunk := self.request.recv(65536):
                self.server.received += chunk
                self.server.willing.wait()
                self.request.sendall(b"ok:" + chunk)
        except ConnectionError:
            self.server.ends.append("reset")
        else:
            self.server.ends.append("closed")


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with EchoServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.willing.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[Proxy]:
    with Proxy(*echo.address) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with connect(proxy) as client:
        yield client


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(proxy.address, timeout=SOON.total_seconds())


def ask(client: socket.socket, question: bytes) -> bytes:
    client.sendall(question)
    return client.recv(100)


def assert_reset(client: socket.socket) -> None:
    """The next thing the client sees is a reset: no answer and no orderly close before it."""
    with pytest.raises(ConnectionResetError):
        client.recv(100)


def assert_silent(client: socket.socket) -> None:
    client.settimeout(SILENCE)
    with pytest.raises(TimeoutError):
        client.recv(100)
    client.settimeout(SOON.total_seconds())


def test_untouched_bytes_and_closes_pass_both_ways(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    assert ask(client, b"hello") == b"ok:hello"
    assert proxy.connections == 1
    client.shutdown(socket.SHUT_WR)
    assert client.recv(100) == b""
    assert wait_until(lambda: echo.ends == ["closed"], SOON)
    assert wait_until(lambda: proxy.connections == 0, SOON)


def test_latency_delays_question_and_answer(client: socket.socket, proxy: Proxy) -> None:
    proxy.slow_down(timedelta(milliseconds=60))
    start = time.monotonic()
    assert ask(client, b"hello") == b"ok:hello"
    assert time.monotonic() - start >= 0.12
    proxy.heal()
    start = time.monotonic()
    assert ask(client, b"hello") == b"ok:hello"
    assert time.monotonic() - start < 0.12


def test_a_cut_resets_clients_and_closes_at_the_server(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    ask(client, b"hello")
    with connect(proxy) as another:
        ask(another, b"hello")
        proxy.cut()
        assert proxy.connections == 0
        assert_reset(client)
        assert_reset(another)
    assert wait_until(lambda: echo.ends == ["closed", "closed"], SOON)
    with connect(proxy) as orderly:
        ask(orderly, b"hello")
        proxy.cut(reset=False)
        assert orderly.recv(100) == b""


def test_refusal_is_for_new_connections_until_healed(client: socket.socket, proxy: Proxy) -> None:
    ask(client, b"hello")
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    assert ask(client, b"still here") == b"ok:still here"
    proxy.heal()
    with connect(proxy) as another:
        assert ask(another, b"hello") == b"ok:hello"


def test_a_black_hole_holds_everything_back_until_healed(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    ask(client, b"hello")
    proxy.black_hole()
    with connect(proxy) as another:
        client.sendall(b"one")
        another.sendall(b"two")
        assert_silent(client)
        assert_silent(another)
        assert echo.received == b"hello"
        proxy.heal()
        assert client.recv(100) == b"ok:one"
        assert another.recv(100) == b"ok:two"


def test_a_client_of_a_server_that_is_down_is_reset(echo: EchoServer, proxy: Proxy) -> None:
    echo.socket.close()
    with connect(proxy) as client:
        assert_reset(client)


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_DURING, Fault.CUT_AFTER])
def test_a_connection_is_cut_before_during_or_after_the_work_of_the_server(
    echo: EchoServer, client: socket.socket, proxy: Proxy, fault: Fault
) -> None:
    rule = proxy.when(b"COMMIT", fault)
    assert ask(client, b"INSERT") == b"ok:INSERT"
    echo.willing.clear()
    client.sendall(b"COMMIT")
    if fault is Fault.CUT_AFTER:
        assert_silent(client)  # not cut before there is an answer, though the client sends more
        client.sendall(b" and the rest")
        echo.willing.set()
    assert_reset(client)
    assert rule.fired == 1
    echo.willing.set()
    assert wait_until(lambda: len(echo.ends) == 1, SOON)
    came = b"INSERT" if fault is Fault.CUT_BEFORE else b"INSERTCOMMIT"
    assert echo.received.startswith(came)
    assert (b"COMMIT" in echo.received) is (fault is not Fault.CUT_BEFORE)


def test_hang_before_the_server_gets_the_bytes(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    rule = proxy.when(b"COMMIT", Fault.HANG_BEFORE)
    client.sendall(b"COMMIT")
    assert_silent(client)
    client.sendall(b"anyone?")
    assert_silent(client)
    assert (rule.fired, echo.received, echo.ends) == (1, b"", [])
    proxy.cut()
    assert_reset(client)
    assert wait_until(lambda: echo.ends == ["closed"], SOON)


def test_hang_after_the_server_got_the_bytes(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    rule = proxy.when(b"COMMIT", Fault.HANG_AFTER)
    client.sendall(b"COMMIT")
    assert_silent(client)
    client.close()  # nor does the server hear of this
    assert (rule.fired, echo.received) == (1, b"COMMIT")
    assert not wait_until(lambda: echo.ends != [], timedelta(seconds=SILENCE))


@pytest.mark.parametrize(("times", "fired"), [(1, 1), (2, 2), (None, 3)])
def test_a_rule_fires_as_often_as_told_and_not_once_healed(
    proxy: Proxy, times: int | None, fired: int
) -> None:
    rule = proxy.when(b"COMMIT", Fault.CUT_BEFORE, times=times)
    for attempt in range(1, 5):
        if attempt == 4:
            proxy.heal()
        with connect(proxy) as client:
            if attempt <= fired:
                client.sendall(b"COMMIT")
                assert_reset(client)
            else:
                assert ask(client, b"COMMIT") == b"ok:COMMIT"
    assert rule.fired == fired


@pytest.mark.parametrize(
    ("marker", "earlier", "chunk", "fires"),
    [
        (b"COMMIT", b"", b"xCOMMITx", True),
        (b"COMMIT", b"xxCOMMI", b"Tx", True),
        (b"COMMIT", b"C", b"OMMIT", True),
        (b"COMMIT", b"COMMI", b"xT", False),
        (b"COMMIT", b"", b"commit", False),
        (lambda chunk: chunk.lower().startswith(b"commit"), b"no commit", b"Commit", True),
    ],
)
def test_a_marker_is_found_across_chunks_and_may_be_a_predicate(
    client: socket.socket, proxy: Proxy, marker: Any, earlier: bytes, chunk: bytes, *, fires: bool
) -> None:
    proxy.when(marker, Fault.CUT_BEFORE)
    if earlier:
        assert ask(client, earlier) == b"ok:" + earlier
    client.sendall(chunk)
    if fires:
        assert_reset(client)
    else:
        assert client.recv(100) == b"ok:" + chunk
