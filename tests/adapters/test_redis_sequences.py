"""What only Redis has: names, expiry, scripts that are forgotten, and a server that is killed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import ResponseError

from headway.adapters.redis.sequences import RedisSequences, redis_sequences
from headway.core.errors import ConfigurationError
from headway.core.sequence_answers import Completion, Look, Offer, Outcome
from headway.core.sequence_settings import OnGap, SequenceSettings
from headway.core.sequence_state import Why
from headway.testing.clock import VirtualClock
from headway.testing.servers import Redis

pytestmark = pytest.mark.server("redis")

HOUR = timedelta(hours=1)
AT = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture
async def sequences(redis_database: str) -> AsyncIterator[RedisSequences]:
    sequences = redis_sequences(redis_database)
    yield sequences
    await sequences.close()


def offer(n: int, token: str, key: str = "7") -> Offer:
    return Offer(key, AT + n * MINUTE, b'{"check": %d}' % n, token, MINUTE)


async def done(sequences: RedisSequences, each: Offer) -> None:
    (answer,) = await sequences.offer([each])
    assert answer.outcome is Outcome.PROCESS
    (done,) = await sequences.complete([Completion(each.key, each.position, each.token)])
    assert done.accepted


async def test_a_person_can_read_what_is_kept(sequences: RedisSequences) -> None:
    await done(sequences, offer(0, "a"))
    client: Any = sequences.client
    assert await client.get("uptime:backlog_task:{7}") == b"%d" % AT
    await sequences.offer([offer(2, "b")])
    ((member, score),) = await client.zrange("uptime:backlog:{7}", 0, -1, withscores=True)
    assert (member.split(b" ", 4)[4], score) == (b'{"check": 2}', AT + 2 * MINUTE)
    assert await client.zrange("uptime:backlog_due", 0, -1) == [b"7"]
    names = sorted(await client.keys("*"))
    assert names == [b"uptime:backlog:{7}", b"uptime:backlog_due", b"uptime:backlog_task:{7}"]


async def test_an_idle_key_is_its_marker(sequences: RedisSequences) -> None:
    await done(sequences, offer(0, "a"))
    client: Any = sequences.client
    assert await client.object("encoding", "uptime:backlog_task:{7}") == b"int"
    assert await client.memory_usage("uptime:backlog_task:{7}") <= 96
    assert await client.keys("*") == [b"uptime:backlog_task:{7}"]
    week = timedelta(days=7) // timedelta(milliseconds=1)
    assert week - 60_000 < await client.pttl("uptime:backlog_task:{7}") <= week


async def test_what_is_held_expires_long_after_it_was_to_be_given_out(
    sequences: RedisSequences,
) -> None:
    await done(sequences, offer(0, "a"))
    await sequences.offer([offer(2, "b")])
    client: Any = sequences.client
    assert await client.ttl("uptime:backlog:{7}") > 20 * HOUR.total_seconds()
    assert await client.ttl("uptime:backlog_task:{7}") > await client.ttl("uptime:backlog:{7}")


async def test_what_is_parked_never_expires(redis_database: str) -> None:
    clock, settings = VirtualClock(), SequenceSettings(on_gap=OnGap.PARK)
    sequences = redis_sequences(redis_database, settings, clock=clock)
    await done(sequences, offer(0, "a"))
    await sequences.offer([offer(2, "b")])
    clock.advance(180 * timedelta(seconds=1))
    (looked,) = await sequences.look([Look("7", "c")])
    assert looked.given_up is Why.TIMEOUT
    client: Any = sequences.client
    for name in ("uptime:backlog:{7}", "uptime:backlog_task:{7}"):
        assert await client.ttl(name) == -1
    await done(sequences, offer(1, "d"))
    assert await client.ttl("uptime:backlog:{7}") > 0
    await sequences.close()


async def test_a_backlog_that_is_gone_leaves_nothing_behind(redis_database: str) -> None:
    clock = VirtualClock()
    sequences = redis_sequences(redis_database, clock=clock)
    await done(sequences, offer(0, "a"))
    await sequences.offer([offer(2, "b")])
    client: Any = sequences.client
    await client.delete("uptime:backlog:{7}")
    clock.advance(HOUR)
    assert list(await sequences.due(5)) == ["7"]
    (looked,) = await sequences.look([Look("7", "c")])
    assert (looked.work, looked.look_in) == (None, None)
    assert await sequences.waiting(5) == (0, [])
    (again,) = await sequences.offer([offer(2, "d")])
    assert (again.outcome, again.look_in) == (Outcome.HELD, timedelta(seconds=10))
    await sequences.close()


async def test_a_script_that_the_server_forgot_is_sent_again(sequences: RedisSequences) -> None:
    await done(sequences, offer(0, "a"))
    await sequences.client.script_flush()
    await done(sequences, offer(1, "b"))


async def test_a_batch_is_one_call(sequences: RedisSequences) -> None:
    client: Any = sequences.client
    await done(sequences, offer(0, "a"))
    await client.config_resetstat()
    offers = [offer(0, f"t{n}", f"k{n}") for n in range(150)]
    answers = await sequences.offer(offers)
    assert all(answer.work for answer in answers)
    await sequences.complete([Completion(o.key, o.position, o.token) for o in offers])
    stats = await client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 2


async def test_the_time_is_the_servers(redis_database: str) -> None:
    quick = SequenceSettings().scaled(0.001)
    sequences = redis_sequences(redis_database, quick)
    await done(sequences, offer(0, "a"))
    await sequences.offer([offer(2, "b")])
    before = (await sequences.read("7")).now
    for n in range(1000):
        (looked,) = await sequences.look([Look("7", f"c{n}")])
        if looked.given_up:
            break
        assert looked.look_in is not None
        await asyncio.sleep(looked.look_in.total_seconds())
    assert looked.given_up is Why.TIMEOUT
    assert (await sequences.read("7")).now - before >= timedelta(milliseconds=100)
    await sequences.close()


async def test_what_is_held_outlives_a_server_that_is_killed() -> None:
    with Redis() as server:
        sequences = redis_sequences(server.url, clock=VirtualClock())
        await sequences.client.config_set("appendfsync", "always")
        await done(sequences, offer(0, "a"))
        await sequences.offer([offer(2, "b"), offer(3, "c")])
        server.kill()
        server.start()
        (answer,) = await sequences.offer([offer(1, "d")])
        work, seen = answer.work, []
        while work is not None:
            seen.append(work.position)
            (completed,) = await sequences.complete([Completion("7", work.position, work.token)])
            work = completed.work
        assert seen == [AT + n * MINUTE for n in (1, 2, 3)]
        await sequences.close()


async def test_a_value_of_somebody_else_is_refused(sequences: RedisSequences) -> None:
    await sequences.client.set("uptime:backlog_task:{7}", "what is this")
    with pytest.raises(ResponseError, match="holds what is no state of a sequence: remove it"):
        await sequences.offer([offer(0, "a")])


@pytest.mark.parametrize("prefix", ["", "a{b"])
def test_a_prefix_that_would_spread_keys_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="use a name without braces"):
        redis_sequences("redis://nobody", prefix=prefix)


async def test_other_prefixes_are_other_sequences(redis_database: str) -> None:
    one = redis_sequences(redis_database, prefix="one")
    two = redis_sequences(redis_database, replace(SequenceSettings(), breaker=3), prefix="two")
    await done(one, offer(5, "a"))
    await done(two, offer(1, "a"))
    assert (await one.read("7")).state.marker == AT + 5 * MINUTE
    for engine in (one, two):
        await engine.close()
