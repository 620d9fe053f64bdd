"""What a broker never takes, learnt from its answer.

A broker answers such a message by closing the channel, or the connection, and names no message.
Sent again it would have the same answer, and everything behind it would wait for ever.
"""

import re

from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

FORBIDDEN, NOT_FOUND, PRECONDITION = 403, 404, 406
_NOT_TAKEN = frozenset({PRECONDITION, 501, 502, 505})
"""The message itself is wrong: too large, or what the broker cannot read."""
_NOT_THERE = frozenset({FORBIDDEN, NOT_FOUND})
"""Its exchange is: that can be mended, without the message."""
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
