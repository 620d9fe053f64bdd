"""The connection of our own: lost, slow, cancelled, refused, encrypted."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import hiredis
import pytest
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,  # noqa: A004 (its own)
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004 (its own)
)

from headway.adapters.redis.link import Link
from headway.adapters.redis.opening import one_server
from headway.testing.servers import Redis
from headway.testing.servers.loopback import HOST, free_port

pytestmark = pytest.mark.server("redis")


async def nothing() -> None: ...


@asynccontextmanager
async def linked(
    url: str, *, tries: int | None = None, meet: Callable[[], Awaitable[None]] = nothing
) -> AsyncIterator[Link]:
    link = Link(one_server(url), meet)
    if tries is not None:
        link._retry = Retry(NoBackoff(), tries - 1)
    yield link
    await link.aclose()


def slow(url: str) -> str:
    return f"{url}?socket_timeout=0.2"


async def echoed(link: Link, *words: str) -> list[Any]:
    return await asyncio.gather(*(link.execute_command("ECHO", word) for word in words))


async def until(fact: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await fact():  # noqa: ASYNC110 (it is asked over the network)
            await asyncio.sleep(0.01)


async def sent(link: Link, *parts: str) -> asyncio.Task[Any]:
    """Give a call that is on its way."""
    await link.execute_command("PING")
    task = asyncio.create_task(link.execute_command(*parts))
    await asyncio.sleep(0)
    assert link._answers is not None
    assert len(link._answers._waiting) == 1
    return task


async def test_calls_at_once_share_a_connection_and_each_has_its_own_answer(
    redis_database: str,
) -> None:
    async with linked(redis_database) as link:
        ids, words = set(), [f"w{n}" for n in range(100)]
        for answers in await asyncio.gather(*(echoed(link, *words) for _ in range(3))):
            assert answers == [word.encode() for word in words]
            ids.add(await link.execute_command("CLIENT", "ID"))
        assert len(ids) == 1


async def test_an_answer_that_comes_in_many_pieces_is_one(redis_database: str) -> None:
    async with linked(redis_database) as link:
        large = os.urandom(3_000_000)
        one, two = await asyncio.gather(
            link.execute_command("ECHO", large), link.execute_command("ECHO", b"\r\n$-1")
        )
        assert one == large
        assert two == b"\r\n$-1"


async def test_the_url_names_database_and_client(redis_server: Redis) -> None:
    url = redis_server.create_database()
    async with linked(f"{url}?client_name=worker-7&protocol=3") as link:
        await link.execute_command("SET", "here", 1)
        assert await link._client.get("here") == b"1"
        assert await link.execute_command("CLIENT", "GETNAME") == b"worker-7"


async def test_a_user_is_logged_in_and_kept_to_what_is_permitted(redis_server: Redis) -> None:
    url = redis_server.create_database()
    async with linked(url) as link:
        user = ("ACL", "SETUSER", "w7", "on", ">s3cret", "~*", "+@all", "-incr")
        await link.execute_command(*user)
    with_user = url.replace("redis://", "redis://w7:s3cret@")
    async with linked(with_user) as link:
        assert await link.execute_command("ACL", "WHOAMI") == b"w7"
        with pytest.raises(NoPermissionError):
            await link.execute_command("INCR", "n")
    async with linked(url.replace("redis://", "redis://w7:wr0ng@"), tries=1) as link:
        with pytest.raises(AuthenticationError) as refused:
            await link.execute_command("PING")
        assert "wr0ng" not in str(refused.value)


async def test_an_error_is_that_of_its_call_only(redis_database: str) -> None:
    async with linked(redis_database) as link:
        for _ in range(2):  # while it is opened, and over what is open
            calls = [("ECHO", "1"), ("INCR", "a", "b", "c"), ("ECHO", "2")]
            tasks = [asyncio.create_task(link.execute_command(*parts)) for parts in calls]
            before, wrong, after = tasks
            assert (await before, await after) == (b"1", b"2")
            with pytest.raises(ResponseError, match="wrong number of arguments"):
                await wrong


async def test_a_cancelled_call_leaves_its_answer_to_nobody(redis_database: str) -> None:
    async with linked(redis_database) as link:
        number = await link.execute_command("CLIENT", "ID")
        call = await sent(link, "ECHO", "one")
        call.cancel()
        assert await echoed(link, "two", "three") == [b"two", b"three"]
        assert call.cancelled()
        assert await link.execute_command("CLIENT", "ID") == number


async def test_whoever_is_cancelled_while_it_is_opened_stops_nobody(redis_database: str) -> None:
    async with linked(redis_database) as link:
        calls = [asyncio.create_task(link.execute_command("CLIENT", "ID")) for _ in range(5)]
        await asyncio.sleep(0)
        calls[0].cancel()
        ids = await asyncio.gather(*calls[1:])
        assert len(set(ids)) == 1


async def test_a_connection_that_was_closed_while_idle_is_opened_again(redis_database: str) -> None:
    async with linked(redis_database) as link:
        number = await link.execute_command("CLIENT", "ID")
        await link._client.client_kill_filter(_id=number)
        assert await echoed(link, "two") == [b"two"]
        assert await link.execute_command("CLIENT", "ID") != number


async def test_a_call_is_made_again_when_the_server_is_killed_in_the_middle() -> None:
    with Redis() as server:
        async with linked(server.url) as link:
            call = await sent(link, "BLPOP", "list", "0")

            async def is_blocked() -> bool:
                return bool((await link._client.info("clients"))["blocked_clients"])

            await until(is_blocked)
            server.kill()
            server.start()
            await until(is_blocked)
            await link._client.rpush("list", "x")
            assert await call == [b"list", b"x"]


async def test_a_server_that_is_gone_is_said_where_it_was() -> None:
    with Redis() as server:
        url = server.url.replace("redis://", "redis://default:s3cret@")
        async with linked(server.url) as link:
            await link.execute_command("CONFIG", "SET", "requirepass", "s3cret")
        async with linked(url, tries=1) as link:
            call = await sent(link, "BLPOP", "list", "0")
            server.kill()
            with pytest.raises(ConnectionError, match=f":{server.port} was lost") as lost:
                await call
            with pytest.raises(ConnectionError, match=f":{server.port}") as refused:
                await link.execute_command("PING")
        assert "s3cret" not in f"{lost.value}{refused.value}"


async def test_a_server_that_hangs_is_given_up_and_its_answers_are_nobodys() -> None:
    with Redis() as server:
        (pid,) = server.pids()
        async with linked(slow(server.url), tries=1) as link:
            await link.execute_command("PING")
            os.kill(pid, signal.SIGSTOP)
            try:
                calls = [link.execute_command("ECHO", f"late{n}") for n in range(3)]
                ends = await asyncio.gather(*calls, return_exceptions=True)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert [type(end) for end in ends] == [TimeoutError] * 3
            assert "gave no answer within 0.2 s" in str(ends[0])
            assert await echoed(link, "one", "two") == [b"one", b"two"]


async def test_every_call_has_the_whole_time(redis_database: str) -> None:
    """The one timer of the connection does not measure from the call that set it going."""
    async with linked(slow(redis_database), tries=1) as link:
        number = await link.execute_command("CLIENT", "ID")
        for _ in range(4):
            await link.execute_command("DEBUG", "SLEEP", "0.12")
        assert await link.execute_command("CLIENT", "ID") == number
        with pytest.raises(TimeoutError):
            await link.execute_command("BLPOP", "list", 0)


async def test_whoever_waits_is_told_that_it_is_closed(redis_database: str) -> None:
    async with linked(redis_database) as link:
        call = await sent(link, "BLPOP", "list", "0")
        await link.aclose()
        with pytest.raises(RedisError, match="was closed: open the sequences anew"):
            await call
        with pytest.raises(RedisError, match="was closed"):
            await link.execute_command("PING")


async def test_whoever_waits_for_its_opening_is_told_that_it_is_closed() -> None:
    with Redis() as server:
        (pid,) = server.pids()
        async with linked(server.url) as link:
            os.kill(pid, signal.SIGSTOP)
            try:
                calls = [asyncio.create_task(link.execute_command("PING")) for _ in range(2)]
                await asyncio.sleep(0.05)
                calls[0].cancel()
                await link.aclose()
            finally:
                os.kill(pid, signal.SIGCONT)
            cancelled, closed = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(cancelled, asyncio.CancelledError)
            assert isinstance(closed, RedisError)
            assert "was closed" in str(closed)


@pytest.mark.parametrize("ticks", range(6))
async def test_it_can_be_closed_at_any_moment_of_its_opening(
    redis_database: str, ticks: int
) -> None:
    link = Link(one_server(redis_database), nothing)
    calls = [asyncio.create_task(link.execute_command("PING")) for _ in range(2)]
    for _ in range(ticks):
        await asyncio.sleep(0)
    await link.aclose()
    for end in await asyncio.gather(*calls, return_exceptions=True):
        assert end == b"PONG" or (isinstance(end, RedisError) and "was closed" in str(end))


async def test_a_primary_that_became_a_replica_is_not_asked_for_ever() -> None:
    with Redis() as server:
        async with linked(server.url) as link:
            number = await link.execute_command("CLIENT", "ID")
            await link._client.replicaof(HOST, free_port())
            with pytest.raises(ReadOnlyError):
                await link.execute_command("SET", "a", 1)
            assert await link.execute_command("CLIENT", "ID") != number


async def test_a_connection_that_is_lost_as_soon_as_it_is_open_keeps_nobody(
    redis_database: str,
) -> None:
    async with linked(redis_database) as link:

        async def meet() -> None:
            assert link._answers is not None
            link._answers.connection_lost(None)

        link._meet = meet
        assert await echoed(link, "1") == [b"1"]


async def test_a_text_that_has_no_bytes_is_refused_before_it_is_sent(redis_database: str) -> None:
    async with linked(redis_database) as link:
        with pytest.raises(UnicodeEncodeError):
            await link.execute_command("ECHO", "\udc80")
        assert await echoed(link, "1\0ü") == ["1\0ü".encode()]


async def test_a_server_is_met_once(redis_database: str) -> None:
    met = []

    async def meet() -> None:
        met.append(1)

    async with linked(redis_database, meet=meet) as link:
        await echoed(link, "1", "2")
        await link._client.client_kill_filter(_id=await link.execute_command("CLIENT", "ID"))
        await echoed(link, "3")
        assert met == [1]


@asynccontextmanager
async def speaking(answer: bytes, after: float = 0) -> AsyncIterator[str]:
    """Give the URL of a server that says this to ECHO, and OK to everything else."""

    serving = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        with closing(writer):
            await answer_all(reader, writer)

    async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = hiredis.Reader()
        while data := await reader.read(1000):
            asked.feed(data)
            while command := asked.gets():
                if command[0] == b"ECHO":
                    await asyncio.sleep(after)
                writer.write(answer if command[0] == b"ECHO" else b"+OK\r\n")

    port = free_port()
    async with await asyncio.start_server(serve, HOST, port):
        yield f"redis://{HOST}:{port}/0"
        await asyncio.gather(*filter(None, serving), return_exceptions=True)


async def test_what_is_no_answer_ends_the_connection() -> None:
    async with speaking(b"?what\r\n") as url, linked(url, tries=1) as link:
        with pytest.raises(ConnectionError, match="what came over it is no answer"):
            await link.execute_command("ECHO", "one")
        assert await link.execute_command("PING") == b"OK"


async def test_who_waits_behind_others_is_given_the_whole_time_after_them() -> None:
    async with speaking(b"+one\r\n", after=0.1) as url, linked(slow(url), tries=1) as link:
        await link.execute_command("PING")
        assert await echoed(link, *"abcde") == [b"one"] * 5
    async with speaking(b"+one\r\n", after=0.4) as url, linked(slow(url), tries=1) as link:
        await link.execute_command("PING")
        with pytest.raises(TimeoutError, match=r"gave no answer within 0.2 s"):
            await link.execute_command("ECHO", "one")


async def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    async with speaking(b"+one\r\n+two\r\n") as url, linked(url, tries=1) as link:
        assert await link.execute_command("ECHO", "one") == b"one"
        assert await link.execute_command("PING") == b"OK"


class TlsRedis(Redis):
    @property
    def certificate(self) -> Path:
        return self.folder.path / "certificate"

    def _prepare(self) -> None:
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
        command += f"-subj /CN=test -addext subjectAltName=IP:{HOST} -keyout key -out certificate"
        subprocess.run(command.split(), cwd=self.folder.path, check=True, capture_output=True)

    def _command(self) -> list[str]:
        plain = super()._command()
        at = plain.index("--port")
        tls = [*plain[:at], "--port", str(free_port()), "--tls-port", *plain[at + 1 :]]
        files = ("--tls-cert-file", "certificate", "--tls-key-file", "key")
        return [*tls, *files, "--tls-auth-clients", "no"]

    def _is_ready(self) -> bool:
        return b"Ready to accept" in (self.folder.path / "log").read_bytes()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl: NOT TESTED!")
async def test_it_is_encrypted_where_the_url_says_so() -> None:
    with TlsRedis() as server:
        url = f"rediss://{HOST}:{server.port}/3"
        async with linked(f"{url}?ssl_ca_certs={server.certificate}") as link:
            large = os.urandom(200_000)
            assert await link.execute_command("ECHO", large) == large
            assert await echoed(link, "1", "2") == [b"1", b"2"]
            number = await link.execute_command("CLIENT", "ID")
            await link.execute_command("CLIENT", "KILL", "ID", number, "SKIPME", "no")
            assert await echoed(link, "3") == [b"3"]
        async with linked(url, tries=1) as link:
            with pytest.raises(ConnectionError, match="certificate"):
                await link.execute_command("PING")
