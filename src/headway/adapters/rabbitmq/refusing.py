"""What a broker never takes: seen before it is sent, or learnt from its answer.

A broker answers such a message by closing the channel, or the connection, and names no message.
Sent again it would have the same answer, and everything behind it would wait for ever.
"""

import re

from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from headway.adapters.rabbitmq.outgoing import Outgoing

FORBIDDEN, NOT_FOUND, PRECONDITION = 403, 404, 406
_NOT_TAKEN = frozenset({PRECONDITION, 501, 502, 505})
"""The message itself is wrong: too large, or what the broker cannot read."""
_NOT_THERE = frozenset({FORBIDDEN, NOT_FOUND})
"""Its exchange is: that can be mended, without the message."""
_FRAME = 8 + 12
"""Bytes of the frame of the properties that are none of theirs."""
_LARGEST = re.compile(r"max size (\d+)")


def code_of(reason: BaseException | None) -> int:
    """Give the number by which the broker says why it closed something; 0: it did not."""
    if isinstance(reason, ChannelClosedByBroker | ConnectionClosedByBroker):
        return int(reason.reply_code)
    return 0


def is_about_a_message(reason: BaseException | None) -> bool:
    """Say whether something was closed because of what was published."""
    return code_of(reason) in _NOT_TAKEN | _NOT_THERE


def is_about_the_exchange(reason: BaseException | None) -> bool:
    return code_of(reason) in _NOT_THERE


def largest_body(reason: BaseException | None) -> int | None:
    """Give the size up to which the broker takes messages, if it has just said so."""
    found = _LARGEST.search(str(reason)) if code_of(reason) == PRECONDITION else None
    return int(found[1]) if found else None


def why_not(message: Outgoing, frame: int, largest: int | None) -> str | None:
    """Say why a message cannot be sent; None: nothing speaks against it.

    `frame`: the size that a frame may have. pika cuts bodies into such pieces, and nothing else.
    """
    if largest is not None and len(message.body) > largest:
        return f"it has {len(message.body)} bytes, and the broker takes at most {largest}"
    if message.properties.headers is None:
        return None  # what is left are short texts, at which pika looks itself
    try:
        size = _FRAME + sum(map(len, message.properties.encode()))
    except Exception as error:  # noqa: BLE001 (whatever pika cannot write)
        return f"its headers cannot be written: {error!r}"
    if frame and size > frame:
        return f"its headers have {size} bytes, and the broker takes at most {frame}"
    return None
