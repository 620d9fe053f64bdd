"""What is written past pika is what pika would have written."""

from math import ceil
from typing import Any

import pika
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pika.frame import Body, Header, Method

from headway.adapters.rabbitmq.frames import UnwritableError, acknowledgement_of, frames_of
from headway.adapters.rabbitmq.outgoing import Outgoing

TEXT = st.text(max_size=60)
HEADERS = st.none() | st.dictionaries(TEXT, TEXT | st.integers(-(2**31), 2**31), max_size=4)
PROPERTIES = st.builds(
    pika.BasicProperties,
    content_type=st.none() | TEXT,
    headers=HEADERS,
    delivery_mode=st.none() | st.just(2),
    message_id=st.none() | TEXT,
    timestamp=st.none() | st.integers(0, 2**40),
    type=st.none() | TEXT,
)


def by_pika(message: Outgoing, channel: int, frame: int) -> bytes:
    publish = pika.spec.Basic.Publish(
        exchange=message.exchange, routing_key=message.routing_key, mandatory=True
    )
    piece = frame - 8
    frames: list[Any] = [
        Method(channel, publish),
        Header(channel, len(message.body), message.properties),
    ]
    frames += [
        Body(channel, message.body[number * piece : (number + 1) * piece])
        for number in range(ceil(len(message.body) / piece))
    ]
    return b"".join(each.marshal() for each in frames)


@settings(max_examples=200)
@given(
    st.builds(Outgoing, TEXT, TEXT, st.binary(max_size=10_000), PROPERTIES),
    st.integers(1, 2_047),
)
def test_the_frames_of_a_message_are_those_of_pika(message: Outgoing, channel: int) -> None:
    assert frames_of(message, channel, 4_096) == by_pika(message, channel, 4_096)


@given(st.integers(0, 2**64 - 1), st.integers(1, 2_047), st.booleans())
def test_an_acknowledgement_is_that_of_pika(tag: int, channel: int, multiple: bool) -> None:  # noqa: FBT001 (drawn)
    acknowledged = pika.spec.Basic.Ack(tag, multiple)
    written = acknowledgement_of(tag, channel, multiple=multiple)
    assert written == Method(channel, acknowledged).marshal()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Outgoing("x", "k" * 256, b"", pika.BasicProperties()), "cannot be written"),
        (Outgoing("x", "k", b"", pika.BasicProperties(headers={"a": object()})), "cannot be"),
        (Outgoing("x", "k", b"", pika.BasicProperties(headers={"a": "b" * 5_000})), "at most 4096"),
    ],
    ids=["key", "header", "long"],
)
def test_what_cannot_be_written_says_why(message: Outgoing, words: str) -> None:
    with pytest.raises(UnwritableError, match=words):
        frames_of(message, 1, 4_096)


def test_a_broker_that_limits_no_frame_is_sent_frames_of_a_usual_size() -> None:
    message = Outgoing("", "q", bytes(300_000), pika.BasicProperties(headers={"a": "b" * 200_000}))
    assert frames_of(message, 1, 0) == by_pika(message, 1, 131_072)
