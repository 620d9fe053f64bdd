"""What was published and not confirmed yet, on one channel of pika."""

from typing import Any, Generic, TypeVar

import pika

T = TypeVar("T")


class Confirms(Generic[T]):
    """Says for each confirm of the broker which of our messages it is about."""

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._open)

    def published(self, what: T) -> None:
        self._last += 1
        self._open[self._last] = what

    def confirmed(self, frame: Any) -> list[T]:
        if not isinstance(frame.method, pika.spec.Basic.Ack):
            raise TypeError(f"the broker refused a message: {frame.method}")
        tag = frame.method.delivery_tag
        if not frame.method.multiple:
            return [self._open.pop(tag)]
        tags = []
        for number in self._open:  # in the order of publishing
            if number > tag:
                break
            tags.append(number)
        return [self._open.pop(number) for number in tags]
