"""The one connection to a server: lost, slow, cancelled, refused, encrypted; and its settings."""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import AuthenticationError, ReadOnlyError, RedisError

from headway.testing.engines import RedisSequences, redis_sequences
from headway.testing.ports import Completion, Look, Offer, Offered
from headway.testing.servers import Redis
from headway.testing.servers.loopback import HOST, free_port

pytestmark = pytest.mark.server("redis")
NAME = "worker-7"


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[RedisSequences]:
    said = "&".join(f"{name}={value}" for name, value in {"client_name": NAME, **options}.items())
    sequences = redis_sequences(f"{url}?{said}", prefix="uptime")
    try:
        yield sequences
    finally:
        await sequences.close()


def by_hand(url: str) -> Any:
    """Give the client of a person, who sees and ends the connections of others."""
    return redis.Redis.from_url(url)


def number(url: str) -> str:
    """Say which connection calls go over; there is one."""
    with by_hand(url) as client:
        database = client.connection_pool.connection_kwargs.get("db", 0)
        clients = [each for each in client.client_list() if each["name"] == NAME]
    ours = [each for each in clients if each["db"] == f"{database}"]
    (found,) = [each["id"] for each in ours if each["cmd"].startswith("eval")]
    return str(found)


async def one(sequences: RedisSequences, key: str) -> Offered:
    (answer,) = await sequences.offer([Offer(key, 1, key.encode(), "t")])
    return answer


async def held(sequences: RedisSequences, key: str) -> int:
    (looked,) = await sequences.look([Look(key, "looks")])
    return looked.held


async def hold_in_each(sequences: RedisSequences, *keys: str) -> None:
    """Hold another number of results in each key: in the first 0, in the next 1."""
    for many, key in enumerate(keys):
        await sequences.offer([Offer(key, 1 + n, b"", f"{n}") for n in range(many + 1)])


async def each_has_its_own(sequences: RedisSequences, *keys: str) -> None:
    await hold_in_each(sequences, *keys)
    answers = await asyncio.gather(*(held(sequences, key) for key in keys))
    assert answers == [*range(len(keys))]


@contextmanager
def stopped(server: Redis) -> Any:
    (pid,) = server.pids()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def test_calls_at_once_share_a_connection_and_each_has_its_own_answer(
    redis_database: str,
) -> None:
    async with opened(redis_database, protocol=3) as sequences:
        await each_has_its_own(sequences, *(f"k{n}" for n in range(30)))
        first = number(redis_database)
        await each_has_its_own(sequences, *(f"m{n}" for n in range(30)))
        assert number(redis_database) == first


async def test_an_answer_that_comes_in_many_pieces_is_one(redis_database: str) -> None:
    large = os.urandom(3_000_000)
    async with opened(redis_database) as sequences:
        await sequences.offer([Offer("a", 1, b"", "t")])
        await sequences.offer([Offer("a", 2, large, "t")])
        completed, _ = await asyncio.gather(
            sequences.complete([Completion("a", 1, "t")]), one(sequences, "\r\n$-1")
        )
    assert completed[0].work is not None
    assert completed[0].work.payload == large


async def test_a_wrong_password_is_refused_and_not_shown(redis_database: str) -> None:
    with by_hand(redis_database) as client:
        client.execute_command("ACL", "SETUSER", "w7", "on", ">s3cret", "~*", "+@all")
    async with opened(redis_database.replace("redis://", "redis://w7:s3cret@")) as sequences:
        await each_has_its_own(sequences, "a")
    async with opened(redis_database.replace("redis://", "redis://w7:wr0ng@")) as sequences:
        with pytest.raises(AuthenticationError) as refused:
            await one(sequences, "a")
    assert "wr0ng" not in str(refused.value)


@pytest.mark.parametrize("ticks", range(6))
async def test_a_cancelled_call_leaves_its_answer_to_no_other(
    redis_database: str, ticks: int
) -> None:
    keys = ("a", "b", "c", "d")
    async with opened(redis_database) as sequences:
        await hold_in_each(sequences, *keys)
        await one_is_cancelled(sequences, keys, ticks)
    async with opened(redis_database) as sequences:  # while it is opened
        await one_is_cancelled(sequences, keys, ticks)


async def one_is_cancelled(sequences: RedisSequences, keys: Sequence[str], ticks: int) -> None:
    first, *others = [asyncio.create_task(held(sequences, key)) for key in keys]
    for _ in range(ticks):
        await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.gather(*others) == [1, 2, 3]
    assert first.cancelled() or first.result() == 0


async def test_a_connection_that_was_closed_while_idle_is_opened_again(redis_database: str) -> None:
    async with opened(redis_database) as sequences:
        await one(sequences, "a")
        first = number(redis_database)
        with by_hand(redis_database) as client:
            client.client_kill_filter(_id=first)
        await each_has_its_own(sequences, "b")
        assert number(redis_database) != first


async def test_a_call_is_made_again_when_the_server_is_killed_in_the_middle() -> None:
    with Redis() as server:
        async with opened(server.url) as sequences:
            await one(sequences, "a")
            with stopped(server):
                call = asyncio.create_task(one(sequences, "b"))
                await asyncio.sleep(0.05)
                server.kill()
            server.start()
            answer = await call
            assert answer.work is not None


async def test_a_server_that_is_gone_is_said_where_it_was() -> None:
    with Redis() as server:
        with by_hand(server.url) as client:
            client.config_set("requirepass", "s3cret")
        async with opened(server.url.replace("redis://", "redis://:s3cret@")) as sequences:
            await one(sequences, "a")
            server.kill()
            with pytest.raises(RedisError, match=f":{server.port}") as lost:
                await one(sequences, "b")
    assert "s3cret" not in str(lost.value)


async def test_a_server_that_hangs_is_given_up_and_its_late_answers_reach_no_caller() -> None:
    with Redis() as server:
        async with opened(server.url, socket_timeout=0.2) as sequences:
            await one(sequences, "a")
            with stopped(server):
                calls = [one(sequences, f"late {n}") for n in range(3)]
                ends = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(end) for end in ends} == {redis.exceptions.TimeoutError}
            assert "0.2 s" in str(ends[0])
            await each_has_its_own(sequences, "b", "c")


async def test_every_call_has_the_whole_time(redis_database: str) -> None:
    """The one timer of the connection does not measure from the call that set it going."""
    async with opened(redis_database, socket_timeout=0.4) as sequences:
        await one(sequences, "a")
        first = number(redis_database)
        with by_hand(redis_database) as client:
            for n in range(4):
                slow = asyncio.to_thread(client.execute_command, "DEBUG", "SLEEP", "0.2")
                await asyncio.gather(slow, one(sequences, f"{n}"))
        assert number(redis_database) == first


@pytest.mark.parametrize("ticks", range(6))
async def test_it_can_be_closed_at_any_moment_of_its_opening(
    redis_database: str, ticks: int
) -> None:
    sequences = redis_sequences(redis_database)
    calls = [asyncio.create_task(one(sequences, f"{n}")) for n in range(2)]
    for _ in range(ticks):
        await asyncio.sleep(0)
    await sequences.close()
    for end in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(end, Offered | RedisError)
    with pytest.raises(RedisError):
        await one(sequences, "c")


@pytest.mark.parametrize("connected", [True, False])
async def test_a_call_that_waits_is_told_that_it_is_closed(*, connected: bool) -> None:
    with Redis() as server:
        async with opened(server.url) as sequences:
            if connected:
                await one(sequences, "a")
            with stopped(server):
                calls = [asyncio.create_task(one(sequences, "b")) for _ in range(2)]
                await asyncio.sleep(0.05)
                calls[0].cancel()
                await sequences.close()
                cancelled, closed = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(closed, RedisError)


async def test_a_primary_that_became_a_replica_is_not_asked_for_ever() -> None:
    with Redis() as server, by_hand(server.url) as client:
        async with opened(server.url) as sequences:
            await one(sequences, "a")
            first = number(server.url)
            client.replicaof(HOST, free_port())
            with pytest.raises(ReadOnlyError):
                await one(sequences, "b")
            client.replicaof("NO", "ONE")
            await each_has_its_own(sequences, "c")
            assert number(server.url) != first


async def test_a_text_that_has_no_bytes_is_refused_before_it_is_sent(redis_database: str) -> None:
    async with opened(redis_database) as sequences:
        with pytest.raises(UnicodeEncodeError):
            await one(sequences, "\udc80")
        await each_has_its_own(sequences, "1\0ü")


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
        async with opened(url, ssl_ca_certs=server.certificate) as sequences:
            await sequences.offer([Offer("a", 1, os.urandom(200_000), "t")])
            await each_has_its_own(sequences, "b", "c")
        async with opened(url) as sequences:
            with pytest.raises(RedisError, match="certificate"):
                await one(sequences, "d")


# What a server may lose is said once, by the worker that meets it


SAFE = {"appendfsync": "always"}


@pytest.mark.parametrize(
    ("configured", "user", "said"),
    [
        (SAFE, "", []),
        ({"appendfsync": "everysec"}, "", [("WARNING", "appendfsync is everysec")]),
        ({"appendfsync": "no"}, "", [("WARNING", "appendfsync is no")]),
        ({"appendonly": "no"}, "", [("WARNING", "appendonly is no")]),
        (
            {**SAFE, "maxmemory-policy": "allkeys-lru"},
            "",
            [("ERROR", "maxmemory-policy is allkeys-lru")],
        ),
        (
            {"maxmemory-policy": "volatile-ttl"},
            "-config",
            [("ERROR", "maxmemory-policy is volatile-ttl")],
        ),
        (SAFE, "-info", [("INFO", "unknown")]),
    ],
)
async def test_what_can_be_lost_is_said_once(
    configured: dict[str, str],
    user: str,
    said: list[tuple[str, str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Redis() as server, by_hand(server.url) as client:
        for name, value in configured.items():
            client.config_set(name, value)
        if user:
            client.execute_command("ACL", "SETUSER", "default", user)
        sequences = redis_sequences(server.url)
        with caplog.at_level(logging.INFO, "headway"):
            await sequences.due(5)
            (answer,) = await sequences.offer([Offer("7", 1, b"", "a")])
        assert answer.work is not None
        await sequences.close()
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert len(lines) == len(said)
    for (level, line), (expected, fact) in zip(lines, said, strict=True):
        assert level == expected
        assert fact in line
