"""Deliveries are read past pika: every one, once, as pika itself would have read it."""

import struct
from types import SimpleNamespace
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec
from pika.exceptions import InvalidFrameError

from headway.adapters.rabbitmq.arriving import delivery_of, due_later
from headway.adapters.rabbitmq.properties import PropertiesReader
from headway.adapters.rabbitmq.reading import Connection
from headway.adapters.rabbitmq.sources import Arrived
from headway.testing.clock import VirtualClock

OURS, OTHER = 1, 2
KNOWN, UNKNOWN = "known-1", "unknown-1"


class Recording(Connection):
    """A connection without a broker: it keeps what pika is given, and what is handed on."""

    def __init__(self) -> None:
        self._frame_buffer = b""
        self._transport = SimpleNamespace()
        self.bytes_received = 0
        self.by_pika: list[str] = []
        self.handed_on: list[tuple[bytes, int, bytes, bytes]] = []
        self.hand_on(OURS, {KNOWN.encode()}.__contains__, self._take)

    def _take(self, consumer: bytes, tag: int, properties: bytes, body: bytes) -> None:
        self.handed_on.append((consumer, tag, properties, body))

    def _process_frame(self, value: Any) -> None:
        self.by_pika.append(f"{type(value).__name__} {value.channel_number}")


def delivery(
    tag: int, body: bytes, *, channel: int = OURS, consumer: str = KNOWN, largest: int = 100
) -> bytes:
    """Give the frames of a delivery as a broker sends them."""
    properties = pika.BasicProperties(message_id=f"m-{tag}", headers={"x": tag})
    method = spec.Basic.Deliver(consumer, tag, False, "", "routing.key")  # noqa: FBT003
    frames = [frame.Method(channel, method), frame.Header(channel, len(body), properties)]
    parts = [body[at : at + largest] for at in range(0, len(body), largest)]
    frames += [frame.Body(channel, part) for part in parts]
    return b"".join(each.marshal() for each in frames)


bodies = st.binary(max_size=350)


@given(
    st.lists(st.tuples(bodies, st.sampled_from(["ours", "other", "unknown", "beat"])), max_size=8),
    st.lists(st.integers(1, 400), max_size=20),
)
def test_however_the_bytes_come_each_delivery_is_handed_on_once(
    sent: list[tuple[bytes, str]], cuts: list[int]
) -> None:
    connection = Recording()
    stream, expected, for_pika = b"", [], 0
    for tag, (body, kind) in enumerate(sent):
        if kind == "beat":
            stream += frame.Heartbeat().marshal()
            for_pika += 1
            continue
        channel = OTHER if kind == "other" else OURS
        consumer = UNKNOWN if kind == "unknown" else KNOWN
        stream += delivery(tag, body, channel=channel, consumer=consumer)
        if kind == "ours":
            expected.append((tag, body))
        else:
            for_pika += 2 + (len(body) + 99) // 100
    at = 0
    for cut in [*cuts, len(stream)]:
        connection._on_data_available(stream[at : at + cut])
        at += cut
    assert [(tag, body) for _, tag, _, body in connection.handed_on] == expected
    assert len(connection.by_pika) == for_pika
    assert connection.bytes_received == len(stream)
    assert not connection._frame_buffer


def test_a_frame_that_is_broken_is_pikas_business() -> None:
    connection = Recording()
    with pytest.raises(InvalidFrameError):
        connection._on_data_available(delivery(1, b"x")[:-1] + b"\x00")
    assert not connection.handed_on


def test_what_comes_after_a_frame_that_raises_is_not_lost() -> None:
    connection = Recording()

    def fail(_value: Any) -> None:
        raise ConnectionError("pika says no")

    connection._process_frame = fail  # type: ignore[assignment]
    rest = delivery(1, b"x")
    with pytest.raises(ConnectionError):
        connection._on_data_available(frame.Heartbeat().marshal() + rest)
    connection._on_data_available(b"")
    assert [tag for _, tag, _, _ in connection.handed_on] == [1]


names = st.sampled_from(["headway-history", "headway-failures", "x-delivery-count", "x-death", "x"])
values = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**31), 2**31 - 1),
    st.booleans(),
    st.none(),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)
short = st.none() | st.text(max_size=20)


@given(
    headers=st.none() | st.dictionaries(names, values, max_size=5),
    message_id=short,
    content_type=short,
    correlation_id=short,
    kind=short,
    mode=st.none() | st.sampled_from([1, 2]),
)
def test_properties_are_read_as_pika_reads_them(
    *,
    headers: dict[str, Any] | None,
    message_id: str | None,
    content_type: str | None,
    correlation_id: str | None,
    kind: str | None,
    mode: int | None,
) -> None:
    properties = pika.BasicProperties(
        headers=headers,
        message_id=message_id,
        content_type=content_type,
        correlation_id=correlation_id,
        type=kind,
        delivery_mode=mode,
    )
    data = b"".join(properties.encode())
    by_pika = pika.BasicProperties()
    by_pika.decode(data)
    reader = PropertiesReader()
    for _ in range(2):  # the second time from memory
        found, named = reader.read(data)
        assert named == by_pika.message_id
        ours = {k: v for k, v in (by_pika.headers or {}).items() if k.startswith("headway-")}
        assert {k: v for k, v in (found or {}).items() if k.startswith("headway-")} == ours
        count = (by_pika.headers or {}).get("x-delivery-count")
        if isinstance(count, int):
            assert (found or {})["x-delivery-count"] == count


@given(st.binary(max_size=60))
def test_properties_that_are_none_spoil_their_message_and_nothing_else(data: bytes) -> None:
    one = Arrived(1, 1, "orders", data, b"{}")
    found = delivery_of(one)
    assert found.body == b"{}"
    try:
        struct.unpack_from(">H", data)
    except struct.error:
        assert "cannot be read" in found.spoilt
    due_later(one, VirtualClock().now())
