"""What only Redis has: names, expiry, scripts that are forgotten, and a server that is killed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError

from headway import ConfigurationError
from headway.errors import UnreadableKeyError
from headway.order import OnGap, SequenceSettings, Why
from headway.testing.clock import VirtualClock
from headway.testing.engines import RedisSequences, clustered_sequences, redis_sequences
from headway.testing.ports import Completion, Look, Offer
from headway.testing.servers import Redis

pytestmark = pytest.mark.server("redis")

HOUR = timedelta(hours=1)
AT = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture
async def sequences(redis_database: str) -> AsyncIterator[RedisSequences]:
    sequences = redis_sequences(redis_database, prefix="uptime")
    yield sequences
    await sequences.close()


def offer(n: int, token: str, key: str = "7") -> Offer:
    return Offer(key, AT + n * MINUTE, b'{"check": %d}' % n, token, MINUTE)


async def done(sequences: RedisSequences, each: Offer) -> None:
    (answer,) = await sequences.offer([each])
    assert answer.outcome == "process"
    (done,) = await sequences.complete([Completion(each.key, each.position, each.token)])
    assert done.accepted


async def test_a_person_can_read_what_is_kept(sequences: RedisSequences) -> None:
    await done(sequences, offer(0, "a"))
    client: Any = sequences.client
    assert await client.get("uptime:backlog_task:{7}") == b"%d" % AT
    await sequences.offer([offer(2, "b")])
    ((member, score),) = await client.zrange("uptime:backlog:{7}", 0, -1, withscores=True)
    first, *_, payload = member.split(b" ", 5)
    assert (first, payload) == (b"#%d" % (AT + 2 * MINUTE), b'{"check": 2}')
    assert score == AT + 2 * MINUTE
    assert await client.zrange("uptime:backlog_due", 0, -1) == [b"7"]
    names = sorted(await client.keys("*"))
    assert names == [b"uptime:backlog:{7}", b"uptime:backlog_due", b"uptime:backlog_task:{7}"]


async def test_what_is_kept_is_small_and_expires_long_after_its_use(
    sequences: RedisSequences,
) -> None:
    await done(sequences, offer(0, "a"))
    client: Any = sequences.client
    assert await client.object("encoding", "uptime:backlog_task:{7}") == b"int"
    assert await client.memory_usage("uptime:backlog_task:{7}") <= 96
    assert await client.keys("*") == [b"uptime:backlog_task:{7}"]
    week = timedelta(days=7) // timedelta(milliseconds=1)
    assert week - 60_000 < await client.pttl("uptime:backlog_task:{7}") <= week
    await sequences.offer([offer(2, "b")])
    assert await client.ttl("uptime:backlog:{7}") > 20 * HOUR.total_seconds()
    assert await client.ttl("uptime:backlog_task:{7}") > await client.ttl("uptime:backlog:{7}")


async def test_what_is_parked_never_expires(redis_database: str) -> None:
    clock, settings = VirtualClock(), SequenceSettings(on_gap=OnGap.PARK)
    sequences = redis_sequences(redis_database, settings, clock=clock, prefix="uptime")
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
    sequences = redis_sequences(redis_database, clock=clock, prefix="uptime")
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
    assert (again.outcome, again.look_in) == ("held", timedelta(seconds=10))
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


async def test_what_is_held_outlives_a_server_that_is_killed() -> None:
    with Redis() as server:
        sequences = redis_sequences(server.url, clock=VirtualClock(), prefix="uptime")
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


async def damage_state(client: Any) -> None:
    await client.set("uptime:backlog_task:{7}", "what is this")


async def damage_parts(client: Any) -> None:
    await client.set("uptime:backlog_task:{7}", "what|is|this|||||||1|")


async def damage_state_type(client: Any) -> None:
    await client.delete("uptime:backlog_task:{7}")
    await client.hset("uptime:backlog_task:{7}", "a", "b")


async def damage_backlog_type(client: Any) -> None:
    await client.set("uptime:backlog:{7}", "what is this")


async def damage_head(client: Any) -> None:
    await client.zadd("uptime:backlog:{7}", {"what is this": AT + 1.5 * MINUTE})


@pytest.mark.parametrize(
    "damage",
    [damage_state, damage_parts, damage_state_type, damage_backlog_type, damage_head],
)
async def test_a_key_that_cannot_be_read_stops_no_other(
    redis_database: str, caplog: pytest.LogCaptureFixture, damage: Callable[[Any], Awaitable[None]]
) -> None:
    clock = VirtualClock()
    sequences = redis_sequences(redis_database, clock=clock, prefix="uptime")
    for key in ("6", "7", "8"):
        await done(sequences, offer(0, "a", key))
        await sequences.offer([offer(n, f"h{n}", key) for n in (2, 3)])
    mine = (await sequences.offer([offer(1, "m")]))[0].work
    assert mine is not None
    await damage(sequences.client)
    clock.advance(timedelta(seconds=31))
    looks = [Look(key, "look") for key in await sequences.due(9)]
    assert sorted(look.key for look in looks) == ["6", "7", "8"]
    assert [looked.held for looked in await sequences.look(looks)].count(2) == 2
    assert list(await sequences.due(9)) == []

    asked = [Completion("6", 1, "no"), Completion("7", mine.position, "m")]
    (_, refused) = await sequences.complete(asked)
    assert (refused.accepted, refused.work) == (False, None)
    offers = [offer(1, "n", key) for key in ("6", "7", "8")]
    answers = await sequences.offer(offers)
    assert answers[0].outcome == answers[2].outcome == "process"
    assert answers[1].outcome == "unreadable"
    assert await sequences.renew(mine) is (damage is damage_head)  # that needs not what is held
    if damage is not damage_head:
        assert await sequences.give_back(offer(1, "m"), timedelta()) is None
        with pytest.raises(UnreadableKeyError, match="'7'"):
            await sequences.drain("7")
    assert "'7'" in caplog.text
    with pytest.raises(UnreadableKeyError, match="'7'"):
        await sequences.read("7")
    await sequences.forget("7")
    assert "7" not in (await sequences.waiting(9))[1]
    await done(sequences, offer(5, "o"))
    await sequences.close()


async def test_what_is_no_key_in_the_index_stops_no_look(
    sequences: RedisSequences, caplog: pytest.LogCaptureFixture
) -> None:
    await sequences.client.zadd("uptime:backlog_due", {b"\xff": 0, b"7": 0})
    assert list(await sequences.due(9)) == ["7"]
    assert "b'\\xff'" in caplog.text
    assert (await sequences.waiting(9))[1] == ["7"]


async def test_who_is_forgotten_is_in_the_index_no_more(sequences: RedisSequences) -> None:
    await done(sequences, offer(0, "a"))
    await sequences.offer([offer(2, "b")])
    await sequences.client.delete("uptime:backlog_task:{7}")  # it expired
    assert await sequences.forget("7") == 1
    assert await sequences.waiting(9) == (0, [])
    assert await sequences.client.keys("*") == []


async def test_an_error_of_the_server_is_no_error_of_a_key() -> None:
    with Redis() as server:
        sequences = redis_sequences(server.url, prefix="uptime")
        await done(sequences, offer(0, "a"))
        await sequences.client.config_set("maxmemory", 1)
        for n in (1, 2):
            with pytest.raises(OutOfMemoryError):
                await sequences.offer([offer(n, "b")])
        await sequences.close()


@pytest.mark.parametrize("opened", [redis_sequences, clustered_sequences])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("decode_responses", "true"),
        ("encoding", "utf-16"),
        ("nonsense", "1"),
        ("socket_timeout", "abc"),
        ("socket_timeout", "-1"),
        ("socket_connect_timeout", "nan"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(
    opened: Callable[[str], RedisSequences], name: str, value: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}='{value}'") as refused:
        opened(f"redis://me:s3cret@nowhere/0?client_name=w&{name}={value}")
    assert "s3cret" not in str(refused.value)


def test_an_address_and_a_prefix_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'redis://\*\*\*'"):
        redis_sequences("redis://nowhere:port/0?client_name=w")
    for prefix in ("", "a{b"):  # a brace would spread the keys of one sequence
        with pytest.raises(ConfigurationError, match="prefix"):
            redis_sequences("redis://nowhere", prefix=prefix)


async def test_other_prefixes_are_other_sequences(redis_database: str) -> None:
    one, two = (redis_sequences(redis_database, prefix=prefix) for prefix in ("one", "two"))
    await done(one, offer(5, "a"))
    await done(two, offer(1, "a"))
    assert (await one.read("7")).state.marker == AT + 5 * MINUTE
    for engine in (one, two):
        await engine.close()
