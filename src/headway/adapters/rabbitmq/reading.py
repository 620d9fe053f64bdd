"""Deliveries, read straight from the bytes that the broker sends.

pika makes five objects of every message and looks for callbacks three times: twice the time that
Headway spends on an event. So the frames of deliveries are recognised here, on the channel that
asked for it, and their parts are handed on as they are. Every other frame goes through pika, as do
messages for consumers that nobody here knows. The only thing of pika's own that is replaced is the
reading of its buffer, which the conformance suite runs against a real broker with every version
that is allowed.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from headway.adapters.rabbitmq.tolerant import TolerantConnection, frame_of

Knows = Callable[[bytes], bool]
"""Says whether a consumer is known, by its tag."""
Delivered = Callable[[bytes, int, bytes, bytes], None]
"""Takes the consumer's tag, the delivery's tag, the properties as they came, and the body."""

_METHOD, _HEADER, _BODY = 1, 2, 3
_DELIVER = b"\x00\x3c\x00\x3c"  # class 60, method 60
_FRAME_END = 0xCE
_AROUND = 8
"""Bytes of a frame that are not its contents: seven before, one after."""
_FRAME = Struct(">BHL").unpack_from
_LONG = Struct(">Q").unpack_from
_AT_ONCE = 65_536


class _Message:
    """A message of which not everything has come yet."""

    __slots__ = ("consumer", "left", "parts", "properties", "tag")

    def __init__(self, consumer: bytes, tag: int) -> None:
        self.consumer = consumer
        self.tag = tag
        self.properties = b""
        self.left = 0
        self.parts: list[bytes] = []


class Connection(TolerantConnection):
    """A connection of pika's, one of whose channels hands its deliveries on unread."""

    _swift_channel = -1
    _knows: Knows
    _delivered: Delivered
    _message: _Message | None = None

    def hand_on(self, channel: int, knows: Knows, delivered: Delivered) -> None:
        """Have the deliveries of a channel handed on, for consumers that are known."""
        self._swift_channel = channel
        self._knows = knows
        self._delivered = delivered
        self._message = None
        transport: Any = self._transport
        # As much as has come: pika asks for 4 kB, which is ten events.
        transport._MAX_RECV_BYTES = _AT_ONCE  # noqa: SLF001

    def _on_data_available(self, data_in: bytes) -> None:
        if self._swift_channel < 0:
            super()._on_data_available(data_in)
            return
        data = self._frame_buffer + data_in if self._frame_buffer else data_in
        self._frame_buffer = b""
        at, end = 0, len(data)
        try:
            while end - at >= _AROUND:
                kind, channel, size = _FRAME(data, at)
                after = at + _AROUND + size
                if after > end:
                    break
                begin, at = at, after
                if channel != self._swift_channel or not self._is_read(
                    kind, data, begin + 7, after - 1
                ):
                    self._read_by_pika(data[begin:after])
        finally:
            # Whatever a frame has led to, the ones after it are still to be read.
            self._frame_buffer = data[at:] + self._frame_buffer
            self.bytes_received += at

    def _read_by_pika(self, data: bytes) -> None:
        _, frame = frame_of(data)
        if frame is not None:
            self._process_frame(frame)

    def _is_read(self, kind: int, data: bytes, begin: int, end: int) -> bool:
        """Read a frame of a delivery; False: it is another one."""
        message = self._message
        if message is None:
            is_delivery = kind == _METHOD and data.startswith(_DELIVER, begin)
            return is_delivery and self._begins(data, begin)
        if data[end] != _FRAME_END:
            return False  # pika knows what to do with a broken connection
        if kind == _BODY:
            message.left -= end - begin
            message.parts.append(data[begin:end])
        elif kind == _HEADER:
            (message.left,) = _LONG(data, begin + 4)
            message.properties = data[begin + 12 : end]
        else:
            self._message = None
            return False
        if message.left <= 0:
            self._message = None
            parts = message.parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._delivered(message.consumer, message.tag, message.properties, body)
        return True

    def _begins(self, data: bytes, begin: int) -> bool:
        at = begin + 5
        after = at + data[begin + 4]
        consumer = data[at:after]
        if not self._knows(consumer):
            return False
        self._message = _Message(consumer, _LONG(data, after)[0])
        return True
