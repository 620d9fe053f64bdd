"""What is written and read past pika is what pika itself would have written and read."""

from math import ceil
from types import SimpleNamespace
from typing import Any

import pika
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from headway.adapters.rabbitmq.frames import acknowledgement_of, frames_of
from headway.adapters.rabbitmq.outgoing import Outgoing
from headway.adapters.rabbitmq.properties import PropertiesReader
from headway.adapters.rabbitmq.reading import Connection
from headway.adapters.rabbitmq.tolerant import properties_of

OURS, OTHER = 1, 2
KNOWN, UNKNOWN = "known-1", "unknown-1"
TEXT = st.text(max_size=60)
NAMES = TEXT | st.sampled_from(["headway-history", "headway-failures", "x-delivery-count"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=9,
)
PROPERTIES = st.builds(
    pika.BasicProperties,
    content_type=st.none() | TEXT,
    headers=st.none() | st.dictionaries(NAMES, VALUES, max_size=5),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | TEXT,
    message_id=st.none() | TEXT,
    timestamp=st.none() | st.integers(0, 2**40),
    type=st.none() | TEXT,
)


def written(channel: int, method: Any, properties: Any, body: bytes, largest: int) -> bytes:
    """Give the frames of a method with content, as pika writes them."""
    frames = [frame.Method(channel, method), frame.Header(channel, len(body), properties)]
    pieces = range(ceil(len(body) / largest))
    frames += [frame.Body(channel, body[at * largest : (at + 1) * largest]) for at in pieces]
    return b"".join(each.marshal() for each in frames)


@given(
    st.builds(Outgoing, TEXT, TEXT, st.binary(max_size=10_000), PROPERTIES),
    st.integers(1, 2_047),
    st.sampled_from([0, 4_096]),  # 0: a broker that limits no frame
)
def test_a_message_is_written_as_pika_writes_it(
    message: Outgoing, channel: int, largest: int
) -> None:
    publish = spec.Basic.Publish(
        exchange=message.exchange, routing_key=message.routing_key, mandatory=True
    )
    expected = written(channel, publish, message.properties, message.body, (largest or 131_072) - 8)
    assert frames_of(message, channel, largest) == expected


@given(st.integers(0, 2**64 - 1), st.integers(1, 2_047), st.booleans())
def test_an_acknowledgement_is_that_of_pika(tag: int, channel: int, multiple: bool) -> None:  # noqa: FBT001 (drawn)
    expected = frame.Method(channel, spec.Basic.Ack(tag, multiple)).marshal()
    assert acknowledgement_of(tag, channel, multiple=multiple) == expected


class Recording(Connection):
    """A connection without a broker: it keeps what pika is given, and what is handed on."""

    def __init__(self) -> None:
        self._frame_buffer = b""
        self._transport = SimpleNamespace()
        self.bytes_received = 0
        self.by_pika = 0
        self.handed_on: list[tuple[int, bytes]] = []
        self.hand_on(OURS, {KNOWN.encode()}.__contains__, self._take)

    def _take(self, _consumer: bytes, tag: int, _properties: bytes, body: bytes) -> None:
        self.handed_on.append((tag, body))

    def _process_frame(self, _value: Any) -> None:
        self.by_pika += 1


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=350), st.sampled_from(["ours", "other", "unknown", "heartbeat"])
        ),
        max_size=8,
    ),
    st.lists(st.integers(1, 400), max_size=20),
)
def test_however_the_bytes_come_each_delivery_is_handed_on_once(
    sent: list[tuple[bytes, str]], cuts: list[int]
) -> None:
    connection = Recording()
    stream, expected, for_pika = b"", [], 0
    for tag, (body, kind) in enumerate(sent):
        if kind == "heartbeat":
            stream += frame.Heartbeat().marshal()
            for_pika += 1
            continue
        channel = OTHER if kind == "other" else OURS
        consumer = UNKNOWN if kind == "unknown" else KNOWN
        method = spec.Basic.Deliver(consumer, tag, False, "", "routing.key")  # noqa: FBT003
        stream += written(channel, method, pika.BasicProperties(headers={"x": tag}), body, 100)
        if kind == "ours":
            expected.append((tag, body))
        else:
            for_pika += 2 + ceil(len(body) / 100)
    at = 0
    for cut in [*cuts, len(stream)]:
        connection._on_data_available(stream[at : at + cut])
        at += cut
    assert (connection.handed_on, connection.by_pika) == (expected, for_pika)
    assert not connection._frame_buffer


@given(PROPERTIES)
def test_properties_are_read_as_pika_reads_them(properties: pika.BasicProperties) -> None:
    data = b"".join(properties.encode())
    by_pika = pika.BasicProperties()
    by_pika.decode(data)
    assert vars(properties_of(data)) == vars(by_pika)
    expected = by_pika.headers or {}
    reader = PropertiesReader()
    for _ in range(2):  # the second time from memory
        found, named = reader.read(data)
        assert named == by_pika.message_id
        for name in ("headway-history", "headway-failures"):
            assert (found or {}).get(name) == expected.get(name)
        count = expected.get("x-delivery-count")
        if isinstance(count, int):
            assert (found or {})["x-delivery-count"] == count


@given(st.binary(max_size=80))
def test_bytes_that_are_no_properties_break_nothing(data: bytes) -> None:
    properties_of(data)
