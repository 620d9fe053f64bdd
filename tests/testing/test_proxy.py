import asyncio
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import asyncpg
import psycopg
import pytest

from headway.testing.proxy import Fault, Proxy, Rule
from headway.testing.servers import PostgreSQL, wait_until

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


def test_much_passes(echo: EchoServer, client: socket.socket) -> None:
    sent = b"x" * 5_000_000
    echo.willing.clear()
    sender = threading.Thread(target=client.sendall, args=(sent,))
    sender.start()
    echo.willing.set()
    answer = b""
    while answer.count(b"x") < len(sent):
        answer += client.recv(1_000_000)
    sender.join()
    assert echo.received == sent


def test_a_slow_reader_gets_all_that_was_sent_before_the_close(proxy: Proxy) -> None:
    sent = b"x" * 200_000
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # most waits in the proxy
        client.connect(proxy.address)
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert wait_until(lambda: proxy.connections == 0, SOON)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
    assert answer.count(b"x") == len(sent)


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


def test_a_cut_without_reset_looks_like_an_orderly_close(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    ask(client, b"hello")
    proxy.cut(reset=False)
    assert client.recv(100) == b""
    assert wait_until(lambda: echo.ends == ["closed"], SOON)


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


def test_a_black_hole_holds_back_an_answer_too(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    echo.willing.clear()
    client.sendall(b"hello")
    assert wait_until(lambda: echo.received == b"hello", SOON)
    proxy.black_hole()
    echo.willing.set()
    assert_silent(client)
    proxy.heal()
    assert client.recv(100) == b"ok:hello"


def test_a_client_of_a_server_that_is_down_is_reset(echo: EchoServer, proxy: Proxy) -> None:
    echo.socket.close()
    with connect(proxy) as client:
        assert_reset(client)


def test_cut_before_the_server_gets_the_bytes(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    rule = proxy.when(b"COMMIT", Fault.CUT_BEFORE)
    assert ask(client, b"INSERT") == b"ok:INSERT"
    client.sendall(b"COMMIT")
    assert_reset(client)
    assert rule.fired == 1
    assert wait_until(lambda: echo.ends == ["closed"], SOON)
    assert echo.received == b"INSERT"


def test_cut_during_the_work_of_the_server(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    rule = proxy.when(b"COMMIT", Fault.CUT_DURING)
    echo.willing.clear()
    client.sendall(b"COMMIT")
    assert_reset(client)  # although the server has not answered
    assert rule.fired == 1
    assert wait_until(lambda: echo.received == b"COMMIT", SOON)
    echo.willing.set()
    assert wait_until(lambda: len(echo.ends) == 1, SOON)


def test_cut_after_the_server_has_answered(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    rule = proxy.when(b"COMMIT", Fault.CUT_AFTER)
    echo.willing.clear()
    client.sendall(b"COMMIT")
    assert_silent(client)  # not cut before there is an answer
    assert rule.fired == 1
    echo.willing.set()
    assert_reset(client)
    assert echo.received == b"COMMIT"
    assert wait_until(lambda: echo.ends == ["closed"], SOON)


def test_cut_after_still_waits_for_the_answer_when_the_client_sends_more(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    proxy.when(b"COMMIT", Fault.CUT_AFTER)
    echo.willing.clear()
    client.sendall(b"COMMIT")
    assert wait_until(lambda: echo.received == b"COMMIT", SOON)
    client.sendall(b" and the rest")
    echo.willing.set()
    assert_reset(client)


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


def test_a_rule_fires_once_unless_told_otherwise(proxy: Proxy) -> None:
    rule = proxy.when(b"COMMIT", Fault.CUT_BEFORE)
    with connect(proxy) as client:
        client.sendall(b"COMMIT")
        assert_reset(client)
    with connect(proxy) as client:
        assert ask(client, b"COMMIT") == b"ok:COMMIT"
    assert rule.fired == 1


@pytest.mark.parametrize(("times", "fired"), [(2, 2), (None, 4)])
def test_a_rule_fires_as_often_as_told(proxy: Proxy, times: int | None, fired: int) -> None:
    rule = proxy.when(b"COMMIT", Fault.CUT_BEFORE, times=times)
    for attempt in range(1, 5):
        with connect(proxy) as client:
            if attempt <= fired:
                client.sendall(b"COMMIT")
                assert_reset(client)
            else:
                assert ask(client, b"COMMIT") == b"ok:COMMIT"
    assert rule.fired == fired


def test_the_rule_given_first_fires_first(client: socket.socket, proxy: Proxy) -> None:
    first = proxy.when(b"COMMIT", Fault.HANG_BEFORE)
    second = proxy.when(b"COMMIT", Fault.CUT_BEFORE)
    client.sendall(b"COMMIT")
    assert_silent(client)
    assert (first.fired, second.fired) == (1, 0)


def test_healing_forgets_the_rules(client: socket.socket, proxy: Proxy) -> None:
    rule = proxy.when(b"COMMIT", Fault.CUT_BEFORE)
    proxy.heal()
    assert ask(client, b"COMMIT") == b"ok:COMMIT"
    assert rule.fired == 0


def test_a_marker_is_found_across_chunks(
    echo: EchoServer, client: socket.socket, proxy: Proxy
) -> None:
    proxy.when(b"COMMIT", Fault.CUT_BEFORE)
    assert ask(client, b"...COM") == b"ok:...COM"
    client.sendall(b"MIT")
    assert_reset(client)
    assert echo.received == b"...COM"


@pytest.mark.parametrize(
    ("earlier", "chunk", "applies"),
    [
        (b"", b"COMMIT", True),
        (b"", b"xCOMMITx", True),
        (b"xxCOMMI", b"Tx", True),
        (b"C", b"OMMIT", True),
        (b"COMMIT", b"x", False),
        (b"COMMI", b"xT", False),
        (b"", b"commit", False),
    ],
)
def test_a_marker_applies_to_the_chunk_that_completes_it(
    earlier: bytes, chunk: bytes, *, applies: bool
) -> None:
    assert Rule(b"COMMIT", Fault.CUT_BEFORE, times=1).applies(earlier, chunk) is applies


def test_a_marker_of_one_byte_is_not_found_in_earlier_chunks() -> None:
    assert not Rule(b"C", Fault.CUT_BEFORE, times=1).applies(b"C", b"x")


def test_a_rule_may_be_a_predicate(client: socket.socket, proxy: Proxy) -> None:
    proxy.when(lambda chunk: chunk.lower().startswith(b"commit"), Fault.CUT_BEFORE)
    assert ask(client, b"no commit") == b"ok:no commit"
    client.sendall(b"Commit")
    assert_reset(client)


def test_an_error_in_a_predicate_is_raised_at_the_end(echo: EchoServer) -> None:
    def wrong(chunk: bytes) -> bool:
        raise LookupError(chunk.decode())

    with pytest.RaisesGroup(pytest.RaisesExc(LookupError, match="hello")):  # noqa: SIM117
        with Proxy(*echo.address) as proxy, connect(proxy) as client:
            proxy.when(wrong, Fault.CUT_BEFORE)
            client.sendall(b"hello")
            client.recv(100)  # raises too: the connection is cut


def test_a_url_leads_through_the_proxy() -> None:
    proxy = Proxy("127.0.0.1", 5432)
    with proxy:
        port = proxy.port
        assert proxy.through("amqp://guest:guest@127.0.0.1:5672/%2F") == (
            f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        )
        assert proxy.through("redis://localhost:6379/0") == f"redis://127.0.0.1:{port}/0"


# A commit against a real PostgreSQL: what the client hears, and what the server really did.

COMMITS = {Fault.CUT_BEFORE: False, Fault.CUT_DURING: True, Fault.CUT_AFTER: True}


@pytest.fixture
def table(postgres_database: str) -> str:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE t (v int)")
    return postgres_database


def rows(url: str) -> int:
    with psycopg.connect(url) as connection:
        (count,) = connection.execute("SELECT count(*) FROM t").fetchone() or (0,)
        return int(count)


def sessions(url: str) -> list[str]:
    """The states of the sessions that others have in the database."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT state FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [state for (state,) in found]


def assert_outcome(url: str, fault: Fault) -> None:
    if fault is Fault.CUT_AFTER:
        assert rows(url) == 1  # at once: the server was done before the client was cut off
    assert wait_until(lambda: sessions(url) == [], SOON)  # the server noticed the cut
    assert rows(url) == int(COMMITS[fault])


@pytest.mark.parametrize("fault", COMMITS)
async def test_asyncpg_does_not_know_whether_a_cut_commit_happened(
    postgres_server: PostgreSQL, table: str, fault: Fault
) -> None:
    async with Proxy(*postgres_server.address) as proxy:
        rule = proxy.when(b"COMMIT", fault)
        connection = await asyncpg.connect(proxy.through(table))
        with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
            await commit_a_row(connection)
        assert rule.fired == 1
        assert_outcome(table, fault)


@pytest.mark.parametrize("fault", COMMITS)
def test_psycopg_does_not_know_whether_a_cut_commit_happened(
    postgres_server: PostgreSQL, table: str, fault: Fault
) -> None:
    with Proxy(*postgres_server.address) as proxy:
        rule = proxy.when(b"COMMIT", fault)
        with (
            pytest.raises(psycopg.OperationalError),
            psycopg.connect(proxy.through(table)) as connection,
        ):
            connection.execute("INSERT INTO t VALUES (1)")
        assert rule.fired == 1
        assert_outcome(table, fault)


@pytest.mark.parametrize(
    ("fault", "state", "committed"),
    [(Fault.HANG_BEFORE, "idle in transaction", 0), (Fault.HANG_AFTER, "idle", 1)],
)
async def test_a_commit_may_hang_before_or_after_it_happened(
    postgres_server: PostgreSQL, table: str, fault: Fault, state: str, committed: int
) -> None:
    async with Proxy(*postgres_server.address) as proxy:
        rule = proxy.when(b"COMMIT", fault)
        connection = await asyncpg.connect(proxy.through(table))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(commit_a_row(connection), SILENCE)
        connection.terminate()
        assert rule.fired == 1
        assert wait_until(lambda: state in sessions(table), SOON)
        assert rows(table) == committed
    assert wait_until(lambda: sessions(table) == [], SOON)


async def commit_a_row(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO t VALUES (1)")
