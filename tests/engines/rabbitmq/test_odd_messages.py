"""Messages that others write, or that a broker never takes: each has an end, and harms no other."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame

from headway.adapters.rabbitmq import headers
from headway.adapters.rabbitmq.arriving import delivery_of, due_later
from headway.adapters.rabbitmq.outgoing import DIRECT, Outgoing
from headway.adapters.rabbitmq.sources import Arrived
from headway.adapters.rabbitmq.tolerant import frame_of, properties_of
from headway.adapters.rabbitmq.writing import SHORTEST_CASE_FILE, apart, read
from headway.core.letter import kept
from headway.errors import NotPublishedError, UnsendableError
from headway.operations import Letter
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.conformance.examples import (
    ORDERS,
    QUEUES,
    letters_for,
    message,
    sent_again,
    take,
)
from headway.testing.ports import HandedBack
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.by_hand import channel_to
from tests.engines.rabbitmq.engine import RabbitEngineHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")

FAILED = ORDERS.failed
NOW = datetime(2026, 1, 17, 5, tzinfo=UTC)
MILLISECONDS, NANOSECONDS = 1_763_280_000_000, 1_763_280_000_000_000_000


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


def instant(value: int) -> bytes:
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


def properties(*entries: tuple[bytes, bytes], message_id: bytes = b"order-1") -> bytes:
    flags = struct.pack(">H", 1 << 13 | 1 << 12 | 1 << 7)
    return flags + table(*entries) + b"\x02" + bytes([len(message_id)]) + message_id


def arrived(data: bytes) -> Arrived:
    return Arrived(1, 1, ORDERS.name, data, b"{}")


ODD = {
    "milliseconds": (b"when", instant(MILLISECONDS)),
    "nanoseconds": (b"when", instant(NANOSECONDS)),
    "no number": (b"ratio", b"d" + struct.pack(">d", float("nan"))),
    "endless": (b"ratio", b"f" + struct.pack(">f", float("inf"))),
    "deep tables": (b"tree", nested(2_000)),
    "deep arrays": (b"tree", b"A" + struct.pack(">I", 2_005) + b"A\x00\x00\x07\xd0" + b"V" * 2_000),
    "a name in Latin-1": (b"stra\xdfe", b"t\x01"),
    "every number": (b"list", b"A" + struct.pack(">I", 11) + b"b\x01B\xffs\x00\x01u\x00\x01V"),
    "a decimal": (b"price", b"D\xff" + struct.pack(">i", 1)),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_what_others_write_beside_an_event_does_not_matter(odd: tuple[bytes, bytes]) -> None:
    found = delivery_of(arrived(properties(odd, (b"headway-failures", number(2)))))
    assert (found.spoilt, found.travel.operation, found.travel.failures) == ("", "order-1", 2)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_stream_is_read_past_whatever_a_message_brings(odd: tuple[bytes, bytes]) -> None:
    stream = frame.Header(7, 5, AsBytes(properties(odd))).marshal()
    assert frame_of(stream[:-1]) == (0, None)
    used, header = frame_of(stream + b"more")
    assert (used, header.channel_number, header.body_size) == (len(stream), 7, 5)
    assert header.properties.message_id == "order-1"
    assert len(header.properties.headers) == 1


def test_a_time_that_is_none_can_be_shown_and_sent_on() -> None:
    found = properties_of(properties((b"ms", instant(MILLISECONDS)), (b"s", instant(1))))
    assert found.headers == {"ms": MILLISECONDS, "s": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}
    assert properties_of(b"".join(found.encode())).headers == found.headers


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=9)
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=9,
)
short = st.none() | st.text(max_size=20)


@given(held=st.none() | st.dictionaries(st.text(max_size=9), values), kind=short, app=short)
def test_properties_are_the_same_as_by_pika(
    held: dict[str, Any] | None, kind: str | None, app: str | None
) -> None:
    written = pika.BasicProperties(
        headers=held, type=kind, app_id=app, priority=3, timestamp=5, message_id="m", expiration="9"
    )
    by_pika = pika.BasicProperties()
    by_pika.decode(b"".join(written.encode()))
    assert vars(properties_of(b"".join(written.encode()))) == vars(by_pika)


@given(st.binary(max_size=80))
def test_bytes_that_are_no_properties_are_none(data: bytes) -> None:
    properties_of(data)


FORGED = {
    "too many failures": (b"headway-failures", number(2**63 - 1)),
    "negative failures": (b"headway-failures", number(-100_000)),
    "more waits than failures": (b"headway-not-yet", number(900_000)),
    "no zone": (b"headway-first-seen", text("2026-01-17T05:00:00")),
    "too large": (b"headway-history", text("[" + " " * 200_000 + "]")),
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
    "too large refusals": (b"headway-refusals", text("[" + " " * 200_000 + "]")),
    "a deep table": (b"headway-failures", nested(2_000)),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_what_nobody_of_ours_wrote_spoils_its_message(forged: tuple[bytes, bytes]) -> None:
    assert "the header headway-" in delivery_of(arrived(properties(forged))).spoilt


def test_returns_that_nobody_counted_can_be_sent_on() -> None:
    found = delivery_of(arrived(properties((b"headway-returns", number(2**63 - 1)))))
    assert found.returns == 1_000


@pytest.mark.parametrize(("days", "waits"), [(300, True), (400, False), (63_000, False)])
def test_nothing_waits_for_longer_than_a_year(days: int, *, waits: bool) -> None:
    due = NOW + timedelta(days=days)
    one = arrived(properties((b"headway-due", text(due.isoformat()))))
    assert due_later(one, NOW) == (due if waits else None)


def test_a_long_operation_travels_as_the_same_short_one_each_time() -> None:
    long = "o" * 200_000
    found = headers.read({headers.OPERATION: long}, None)
    assert len(found.operation) < 255
    assert found == headers.read({headers.OPERATION: long}, None)
    assert found != headers.read({headers.OPERATION: f"{long}!"}, None)


# Kept apart


def test_a_large_letter_is_its_event_with_the_case_file_beside_it() -> None:
    letter = letter_of(b"\xff" * 300_000)
    out = apart(FAILED, letter)
    assert out.body == b"\xff" * 300_000
    assert read(out.properties, out.body, is_dead=False) == letter


def test_of_a_case_file_that_is_too_long_goes_what_can_be_spared() -> None:
    odd = {
        "document_ids": tuple(f"document-{n}" for n in range(20_000)),
        "idempotency_key": "k" * 100_000,
        "headers": {"x": "y" * 50_000},
    }
    letter = msgspec.structs.replace(letter_of(b"\xff"), **odd)
    out = apart(FAILED, letter, SHORTEST_CASE_FILE)
    assert sum(map(len, out.properties.encode())) < 4_000
    found = read(out.properties, out.body, is_dead=False)
    assert found is not None
    assert (found.letter_id, found.operation, found.body) == (
        letter.letter_id,
        letter.operation,
        b"\xff",
    )


def letter_of(body: bytes) -> Letter:
    original, in_base64 = kept(body)
    (letter,) = letters_for(["large"], NOW)
    return msgspec.structs.replace(letter, original_event=original, original_base64=in_base64)


# With a broker


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


@pytest.fixture
def small_messages(rabbitmq_server: RabbitMQ) -> Iterator[int]:
    rabbitmq_server.limit_messages(100_000)
    yield 100_000
    rabbitmq_server.limit_messages()


def put_raw(url: str, queue: str, data: bytes, body: bytes) -> None:
    with channel_to(url) as channel:
        channel.confirm_delivery()
        channel.basic_publish("", queue, body, AsBytes(data), mandatory=True)


async def test_what_cannot_be_sent_fails_alone(harness: RabbitEngineHarness) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    bad = [
        pika.BasicProperties(type="T" * 300),
        pika.BasicProperties(headers={"n": 2**63}),
        pika.BasicProperties(headers={"n": "\ud800"}),
        pika.BasicProperties(message_id="\ud800"),
        pika.BasicProperties(headers={"n": "x" * 200_000}),
    ]
    sending = []
    for each in bad:
        for one in (each, pika.BasicProperties()):
            out = Outgoing(DIRECT, ORDERS.name, b"{}", one)
            sending.append(asyncio.create_task(parts.bus.send([out])))
    async with asyncio.timeout(10):
        found = await asyncio.gather(*sending, return_exceptions=True)
        assert await parts.bus.publish([message("good")]) == [1]
    assert all(isinstance(each, UnsendableError) for each in found[::2]), found
    assert found[1::2] == [[True]] * len(bad)
    taken = await take(harness, await engine_of(harness), 6)
    assert len(taken) == 6
    assert DEFAULT_CLASSIFIER.classify(UnsendableError("x")).verdict is Verdict.PERMANENT


async def engine_of(harness: RabbitEngineHarness) -> Any:
    engine = await harness.open_engine()
    await engine.bus.open(QUEUES)
    return engine


async def test_an_exchange_that_is_not_there_keeps_back_nothing_else(
    harness: RabbitEngineHarness,
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    plain = pika.BasicProperties()
    lost = [
        asyncio.create_task(parts.bus.send([Outgoing("nowhere", "x", b"", plain)])) for _ in "123"
    ]
    good = [asyncio.create_task(parts.bus.publish([message(name)])) for name in "abc"]
    async with asyncio.timeout(10):
        assert await asyncio.gather(*good) == [[1]] * 3
        for each in await asyncio.gather(*lost, return_exceptions=True):
            assert isinstance(each, NotPublishedError)


async def test_a_long_type_does_not_keep_a_letter_from_being_requeued(
    harness: RabbitEngineHarness,
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    letter = msgspec.structs.replace(letters_for(["a"], NOW)[0], event_type="T" * 300)
    await parts.letters.write(FAILED, [letter])
    assert await parts.letters.requeue(FAILED, letter.letter_id, sent_again(letter))
    assert list(await parts.letters.read(FAILED, 10)) == []


async def test_odd_messages_in_a_failed_queue_are_letters_like_others(
    harness: RabbitEngineHarness,
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    first, second = letters_for(["a", "b"], harness.clock.now())
    await parts.letters.write(FAILED, [first])
    odd = ("milliseconds", "deep tables", "a name in Latin-1", "a decimal")
    for name in odd:
        put_raw(harness.url, FAILED, properties(ODD[name]), name.encode())
    await parts.letters.write(FAILED, [second])
    found = await parts.letters.read(FAILED, 10)
    assert [each.body for each in found[1:-1]] == [name.encode() for name in odd]
    assert (found[0], found[-1]) == (first, second)
    assert found[1].headers == {"when": str(MILLISECONDS)}
    again = sent_again(msgspec.structs.replace(found[1], queue=ORDERS.name))
    assert await parts.letters.requeue(FAILED, found[1].letter_id, again)
    assert await parts.letters.remove(FAILED, [each.letter_id for each in found[2:]]) == 4
    assert list(await parts.letters.read(FAILED, 10)) == [first]


async def test_one_odd_message_strands_none_of_those_that_came_with_it(
    harness: RabbitEngineHarness,
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    put_raw(harness.url, ORDERS.name, properties(ODD["nanoseconds"]), b"odd")
    await parts.bus.publish([message(f"good-{n}") for n in range(20)])
    assert len(await take(harness, await engine_of(harness), 21)) == 21


async def test_what_is_too_large_for_the_broker_is_found_and_keeps_back_nothing(
    harness: RabbitEngineHarness, small_messages: int
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    large = [message(f"large-{n}", body=b"x" * (small_messages + 1)) for n in range(3)]
    sending = [asyncio.create_task(parts.bus.publish([each])) for each in large]
    good = [asyncio.create_task(parts.bus.publish([message(f"good-{n}")])) for n in range(5)]
    async with asyncio.timeout(20):
        for each in await asyncio.gather(*sending, return_exceptions=True):
            assert isinstance(each, UnsendableError)
        assert await asyncio.gather(*good) == [[1]] * 5


async def test_a_letter_is_never_larger_than_its_event(
    harness: RabbitEngineHarness, small_messages: int
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    small, large = letters_for(["small"], NOW)[0], letter_of(b"\xff" * (small_messages - 100))
    async with asyncio.timeout(20):
        await parts.letters.write(FAILED, [small, large])
    found = await parts.letters.read(FAILED, 10)
    assert sorted(each.body for each in found) == sorted([small.body, large.body])
    assert await parts.letters.requeue(FAILED, large.letter_id, sent_again(large))


async def test_an_event_that_cannot_be_sent_on_ends_in_the_failed_queue_as_it_is(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    """The broker took it once, and would not take it again."""
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    body = b"x" * 150_000
    await parts.bus.publish([message("large", body=body), message("small")])
    rabbitmq_server.limit_messages(100_000)
    try:
        engine = await engine_of(harness)
        taken = await take(harness, engine, 2)
        async with asyncio.timeout(20):
            assert await engine.bus.settle([(each, HandedBack()) for each in taken]) == [True, True]
    finally:
        rabbitmq_server.limit_messages()
    for _ in range(50):
        if found := await parts.letters.read(FAILED, 10):
            break
        await asyncio.sleep(0.1)
    assert [(each.body, each.operation, each.queue) for each in found] == [
        (body, "large", ORDERS.name)
    ]
    (again,) = await take(harness, engine, 1)
    assert again.travel.operation == "small"
