"""Messages that others write, or that a broker never takes: each has an end, and harms no other."""

import asyncio
import struct
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pika
import pytest

from headway.errors import UnsendableError
from headway.operations import Letter
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.conformance.examples import (
    ORDERS,
    letters_for,
    message,
    nothing_due,
    operations,
    sent_again,
    take,
    well_travelled,
)
from headway.testing.engines import without_store
from headway.testing.ports import HandedBack, Travel, instant
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.by_hand import channel_to
from tests.engines.rabbitmq.engine import RabbitEngineHarness, drained

FAILED = ORDERS.failed
MILLISECONDS, NANOSECONDS = 1_763_280_000_000, 1_763_280_000_000_000_000
Harness = RabbitEngineHarness


class AsBytes(pika.BasicProperties):  # type: ignore[misc] # pika tells no types
    """Properties that pika would not write."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data

    def encode(self) -> list[bytes]:
        return [self.data]


def table(*entries: tuple[bytes, bytes]) -> bytes:
    inside = b"".join(bytes([len(name)]) + name + value for name, value in entries)
    return struct.pack(">I", len(inside)) + inside


def time(value: int) -> bytes:
    return b"T" + struct.pack(">Q", value)


def number(value: int) -> bytes:
    return b"l" + struct.pack(">q", value)


def text(value: str) -> bytes:
    return b"S" + struct.pack(">I", len(value)) + value.encode()


def nested(depth: int) -> bytes:
    value = b"V"
    for _ in range(depth):
        value = b"F" + table((b"a", value))
    return value


def put_raw(url: str, queue: str, body: str, *entries: tuple[bytes, bytes]) -> None:
    """Publish a message with these headers, whose id is its body."""
    flags = struct.pack(">H", 1 << 13 | 1 << 12 | 1 << 7)
    data = flags + table(*entries) + b"\x02" + bytes([len(body)]) + body.encode()
    with channel_to(url) as channel:
        channel.confirm_delivery()
        channel.basic_publish("", queue, body.encode(), AsBytes(data), mandatory=True)


ODD = {
    "milliseconds": (b"when", time(MILLISECONDS)),
    "nanoseconds": (b"when", time(NANOSECONDS)),
    "deep tables": (b"tree", nested(2_000)),
    "deep arrays": (b"tree", b"A" + struct.pack(">I", 2_005) + b"A\x00\x00\x07\xd0" + b"V" * 2_000),
    "a name in Latin-1": (b"stra\xdfe", b"t\x01"),
    "every number": (b"list", b"A" + struct.pack(">I", 11) + b"b\x01B\xffs\x00\x01u\x00\x01V"),
    "a decimal": (b"price", b"D\xff" + struct.pack(">i", 1)),
}


async def test_what_others_write_beside_an_event_does_not_matter(harness: Harness) -> None:
    parts = await harness.opened()
    for name, odd in ODD.items():
        put_raw(harness.url, ORDERS.name, name, odd, (b"headway-failures", number(2)))
    await parts.bus.publish([message("good")])
    taken = await take(harness, without_store(parts), len(ODD) + 1)
    found = {each.travel.operation: (each.spoilt, each.travel.failures) for each in taken}
    assert found == {**dict.fromkeys(ODD, ("", 2)), "good": ("", 0)}


FORGED = {
    "too many failures": (b"headway-failures", number(2**63 - 1)),
    "negative failures": (b"headway-failures", number(-100_000)),
    "more waits than failures": (b"headway-not-yet", number(900_000)),
    "no zone": (b"headway-first-seen", text("2026-01-17T05:00:00")),
    "before our time": (b"headway-first-seen", text("0001-01-01T00:00:00+23:00")),
    "after our time": (b"headway-first-seen", text("9999-12-31T23:59:59-23:00")),
    "parked for ages": (b"headway-parked", text("1e19")),
    "no attempt": (
        b"headway-history",
        text(
            '[{"number":1,"at":"x","worker":"","error_type":"","message":"","verdict":"","rule":""}]'
        ),
    ),
    "no refusals": (b"headway-refusals", text("{}")),
    "a number as refusals": (b"headway-refusals", number(3)),
    "a refusal at no time": (
        b"headway-refusals",
        text('[{"version":"1","since":"x","error":""}]'),
    ),
    "a deep table": (b"headway-failures", nested(2_000)),
}


async def test_forged_headers_spoil_their_own_message_only(harness: Harness) -> None:
    parts = await harness.opened()
    for name, forged in FORGED.items():
        put_raw(harness.url, ORDERS.name, name, forged)
    await parts.bus.publish([message("good")])
    taken = await take(harness, without_store(parts), len(FORGED) + 1)
    found = {each.body.decode(): each.spoilt for each in taken}
    assert not found.pop(message("good").body.decode())
    assert found.keys() == FORGED.keys()
    for name, (header, _) in FORGED.items():
        assert header.decode() in found[name]


async def test_forged_returns_delays_and_names_stay_within_bounds(harness: Harness) -> None:
    parts, engine = await harness.opened(), without_store(await harness.opened())
    now = harness.clock.now()
    put_raw(harness.url, ORDERS.name, "returns", (b"headway-returns", number(2**63 - 1)))
    for days in (300, 400, 63_000):
        due = instant(now + timedelta(days=days))
        put_raw(harness.url, ORDERS.name, f"{days} days", (b"headway-due", text(due)))
    taken = {each.body.decode(): each for each in await take(harness, engine, 3)}
    assert taken.keys() == {"returns", "400 days", "63000 days"}  # nothing waits for over a year
    assert taken["returns"].returns == 1_000
    long = "o" * 50_000
    for name in (long, long, f"{long}!"):
        put_raw(harness.url, ORDERS.name, "long", (b"headway-operation", text(name)))
    names = operations(await take(harness, engine, 3))
    assert len(set(names)) == 2
    assert all(len(name) < 255 for name in names)
    await nothing_due(harness, engine)
    assert sum(each.delayed for each in (await parts.places.depths()).queues) == 1


@pytest.fixture
def small_messages(rabbitmq_server: RabbitMQ) -> Iterator[int]:
    rabbitmq_server.limit_messages(100_000)
    yield 100_000
    rabbitmq_server.limit_messages()


async def test_what_cannot_be_sent_fails_alone(harness: Harness, small_messages: int) -> None:
    parts = await harness.opened()
    bad = [
        message("headers", travel=well_travelled("headers", harness.clock.now(), attempts=200)),
        message("number", travel=Travel(operation="number", failures=2**63)),
        message("text", travel=Travel(operation="text", generation="\ud800")),
        *(message("body", body=bytes(small_messages + 1)) for _ in range(3)),
    ]
    good = [message(f"good-{number}") for number in range(len(bad))]
    both = [each for pair in zip(bad, good, strict=True) for each in pair]
    async with asyncio.timeout(20):
        found = await asyncio.gather(
            *(parts.bus.publish([each]) for each in both), return_exceptions=True
        )
    assert all(isinstance(each, UnsendableError) for each in found[::2]), found
    assert found[1::2] == [[1]] * len(good)
    assert set(await drained(parts.bus, 6)) == {f"good-{number}" for number in range(6)}
    assert DEFAULT_CLASSIFIER.classify(UnsendableError("x")).verdict is Verdict.PERMANENT


async def test_odd_messages_in_a_failed_queue_are_letters_like_others(harness: Harness) -> None:
    parts = await harness.opened()
    first, second = letters_for(["a", "b"], harness.clock.now())
    second = msgspec.structs.replace(second, event_type="T" * 300)
    await parts.letters.write(FAILED, [first])
    odd = ("milliseconds", "deep tables", "a name in Latin-1", "a decimal")
    for name in odd:
        put_raw(harness.url, FAILED, name, ODD[name])
    await parts.letters.write(FAILED, [second])
    found = await parts.letters.read(FAILED, 10)
    assert [each.body.decode() for each in found[1:-1]] == [*odd]
    assert (found[0], found[-1]) == (first, second)
    assert found[1].headers == {"when": str(MILLISECONDS)}
    for letter in (msgspec.structs.replace(found[1], queue=ORDERS.name), second):
        assert await parts.letters.requeue(FAILED, letter.letter_id, sent_again(letter))
    assert await parts.letters.remove(FAILED, [each.letter_id for each in found[2:]]) == 3
    assert list(await parts.letters.read(FAILED, 10)) == [first]


async def test_a_letter_is_never_larger_than_its_event(
    harness: Harness, small_messages: int
) -> None:
    parts = await harness.opened()
    small, large, long = letters_for(["small", "large", "long"], harness.clock.now())
    large = _with_body(large, b"\xff" * (small_messages - 100))
    long = msgspec.structs.replace(
        _with_body(long, b"\xff"),
        document_ids=tuple(f"document-{n}" for n in range(20_000)),
        idempotency_key="k" * 100_000,
        headers={"x": "y" * 50_000},
    )
    async with asyncio.timeout(20):
        await parts.letters.write(FAILED, [small, large, long])
    found = {each.letter_id: each for each in await parts.letters.read(FAILED, 10)}
    assert found[small.letter_id] == small
    assert found[large.letter_id] == large
    spared = found[long.letter_id]  # of its case file goes what can be spared
    assert (spared.operation, spared.body, spared.document_ids) == ("long", b"\xff", ())
    assert await parts.letters.requeue(FAILED, large.letter_id, sent_again(large))


def _with_body(letter: Letter, body: bytes) -> Letter:
    in_base64 = b64encode(body).decode()
    return msgspec.structs.replace(letter, original_event=None, original_base64=in_base64)


async def test_an_event_that_cannot_be_sent_on_ends_in_the_failed_queue_as_it_is(
    harness: Harness, rabbitmq_server: RabbitMQ
) -> None:
    """The broker took it once, and would not take it again."""
    parts, engine = await harness.opened(), without_store(await harness.opened())
    body = b"x" * 150_000
    await parts.bus.publish([message("large", body=body), message("small")])
    rabbitmq_server.limit_messages(100_000)
    try:
        taken = await take(harness, engine, 2)
        async with asyncio.timeout(20):
            assert await engine.bus.settle([(each, HandedBack()) for each in taken]) == [True, True]
    finally:
        rabbitmq_server.limit_messages()
    async with asyncio.timeout(20):
        while not (found := await parts.letters.read(FAILED, 10)):
            await harness.pass_time(harness.moment)
    assert [(each.body, each.operation, each.queue) for each in found] == [
        (body, "large", ORDERS.name)
    ]
    assert operations(await take(harness, engine, 1)) == ["small"]
