"""A connection of pika's that no message can break.

pika reads the properties of a message while it reads the stream. If it raises there, the connection
is lost; and since the message is still in its queue, so is the next one. One odd header would keep
a whole failed queue from being read. So the properties are read here, and everything else by pika.
"""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any

import pika
from pika.frame import Header, decode_frame

from headway.adapters.rabbitmq.tables import table_of

_HEADER, _FRAME_END = 2, 0xCE
_BASIC = 60
"""The class of all that is published and delivered."""
_BEFORE, _AROUND = 7, 8
_AT_ONCE = 65_536
_FRAME = Struct(">BHL").unpack_from
_CONTENT = Struct(">HHQ").unpack_from
_FLAGS = Struct(">H").unpack_from
_LENGTH = Struct(">L").unpack_from
_LONG = Struct(">Q").unpack_from

_Part = tuple[Any, int]


def _short(data: bytes, at: int) -> _Part:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(errors="backslashreplace"), end


def _octet(data: bytes, at: int) -> _Part:
    return data[at], at + 1


def _long(data: bytes, at: int) -> _Part:
    return _LONG(data, at)[0], at + 8


def _table(data: bytes, at: int) -> _Part:
    end = at + 4 + int(_LENGTH(data, at)[0])
    return table_of(data[at + 4 : end]), end


_IN_ORDER: tuple[tuple[str, Callable[[bytes, int], _Part]], ...] = (
    ("content_type", _short),
    ("content_encoding", _short),
    ("headers", _table),
    ("delivery_mode", _octet),
    ("priority", _octet),
    ("correlation_id", _short),
    ("reply_to", _short),
    ("expiration", _short),
    ("message_id", _short),
    ("timestamp", _long),
    ("type", _short),
    ("user_id", _short),
    ("app_id", _short),
    ("cluster_id", _short),
)
_FIRST_FLAG = 1 << 15


def properties_of(data: bytes) -> pika.BasicProperties:
    """Read properties as pika would, with text for every name and a value for every header."""
    properties = pika.BasicProperties()
    try:
        (flags,), at = _FLAGS(data), 2
        for number, (name, read) in enumerate(_IN_ORDER):
            if flags & _FIRST_FLAG >> number:
                value, at = read(data, at)
                setattr(properties, name, value)
    except Exception:  # noqa: BLE001 (bytes that are no properties: the body can still be kept)
        return properties
    return properties


def frame_of(data: bytes) -> tuple[int, Any]:
    """Read the frame at the beginning of some bytes, as `pika.frame.decode_frame` does."""
    if len(data) >= _BEFORE and data[0] == _HEADER:
        _, channel, size = _FRAME(data)
        end = size + _AROUND
        if end > len(data):
            return 0, None
        kind, _, length = _CONTENT(data, _BEFORE)
        if kind == _BASIC and data[end - 1] == _FRAME_END:
            return end, Header(channel, length, properties_of(data[_BEFORE + 12 : end - 1]))
    found: tuple[int, Any] = decode_frame(data)
    return found


class TolerantConnection(pika.SelectConnection):  # type: ignore[misc] # pika tells no types
    """Reads every message, however odd what came beside it."""

    _frame_buffer: bytes

    def _read_frame(self) -> tuple[int, Any]:
        return frame_of(self._frame_buffer)

    def write(self, frames: Iterable[bytes]) -> None:
        """Send frames as they are, in few pieces: pika asks the system once for each."""
        piece: list[bytes] = []
        size = 0
        for each in frames:
            piece.append(each)
            size += len(each)
            if size >= _AT_ONCE:
                self._output_marshaled_frames([b"".join(piece)])
                piece, size = [], 0
        if piece:
            self._output_marshaled_frames([b"".join(piece)])
