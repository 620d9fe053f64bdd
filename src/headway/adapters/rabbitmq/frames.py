"""What is sent most often, as the bytes of its frames: messages, and acknowledgements.

pika writes three frames of a message, each by a call of its own to the system, and that is most of
what a message costs here. So frames are written side by side, for as many messages as go together.
The properties are still pika's to write.
"""

from functools import lru_cache
from struct import Struct

import pika
from pika.frame import Method

from headway.adapters.rabbitmq.outgoing import Outgoing

_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC, _ACK = 60, 80
"""The class of all that is published and delivered, and a method of it."""
_FRAME = Struct(">BHL").pack
_CONTENT = Struct(">HHQ").pack
_ACKNOWLEDGEMENT = Struct(">BHLHHQ?B").pack
_LAST = 0xCE
_END = bytes([_LAST])
_AROUND = 8
"""Bytes of a frame that are not its contents."""
_UNLIMITED = 131_072


class UnwritableError(ValueError):
    """A message that has no frames, and why."""


def frames_of(message: Outgoing, channel: int, frame: int) -> bytes:
    """Write a message; `frame` is the size that the broker allows a frame, 0 any.

    Only a body can be cut into pieces: headers that are larger than a frame cannot be sent.
    """
    body = message.body
    try:
        method = _method(channel, message.exchange, message.routing_key)
        properties = b"".join(message.properties.encode())
    except Exception as error:
        raise UnwritableError(f"it cannot be written: {error!r}") from error
    size = len(properties) + 12
    if frame and size + _AROUND > frame:
        raise UnwritableError(
            f"its headers have {size + _AROUND} bytes, and the broker takes at most {frame}"
        )
    content = _CONTENT(_BASIC, 0, len(body))
    parts = [method, _FRAME(_HEADER, channel, size), content, properties, _END]
    piece = (frame or _UNLIMITED) - _AROUND
    for at in range(0, len(body), piece):
        cut = body[at : at + piece]
        parts += (_FRAME(_BODY, channel, len(cut)), cut, _END)
    return b"".join(parts)


def acknowledgement_of(tag: int, channel: int, *, multiple: bool = False) -> bytes:
    """Acknowledge a delivery; `multiple`: and all before it."""
    return _ACKNOWLEDGEMENT(_METHOD, channel, 13, _BASIC, _ACK, tag, multiple, _LAST)


@lru_cache(maxsize=1_000)
def _method(channel: int, exchange: str, routing_key: str) -> bytes:
    publish = pika.spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
    written: bytes = Method(channel, publish).marshal()
    return written
