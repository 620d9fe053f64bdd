"""What has arrived from the queues that are consumed from."""

from collections import deque
from typing import NamedTuple


class Arrived(NamedTuple):
    """A message as it came from the broker."""

    epoch: int
    """The channel that it came by: another one has another number."""
    tag: int
    source: str
    """The queue at the broker."""
    properties: bytes
    """As they came."""
    body: bytes


class Source:
    """One queue that is consumed from; every growth of its window is one consumer more."""

    __slots__ = ("arrived", "name", "wanted", "windows")

    def __init__(self, name: str) -> None:
        self.name = name
        self.wanted = 0
        """How many may be here, unacknowledged."""
        self.windows: dict[str, int] = {}
        """The same, for each consumer of the present channel."""
        self.arrived: deque[Arrived] = deque()

    @property
    def window(self) -> int:
        return sum(self.windows.values())

    @property
    def age(self) -> int:
        """The tag of the first that has arrived and was not taken."""
        return self.arrived[0].tag
