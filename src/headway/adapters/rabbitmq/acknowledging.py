"""Which acknowledgements say, in few frames, what has been settled."""

from collections.abc import Iterable


class Acknowledged:
    """The deliveries of one channel: their tags are 1, 2, 3 and so on, in the order they came.

    One acknowledgement may cover a delivery and all before it, but only if all of these are
    settled. A slow event at the beginning must not keep the others from being acknowledged: those
    are acknowledged one by one.
    """

    def __init__(self) -> None:
        self._first = 1
        """The first tag that is not settled."""
        self._ahead: set[int] = set()
        """Settled, and acknowledged one by one, because some before them are not."""

    def is_open(self, tag: int) -> bool:
        """Say whether a delivery has not been settled yet."""
        return tag >= self._first and tag not in self._ahead

    def settle(self, tags: Iterable[int]) -> tuple[int | None, list[int]]:
        """Settle open deliveries; say up to which tag, and which ones by themselves.

        >>> acknowledged = Acknowledged()
        >>> acknowledged.settle([2, 4])
        (None, [2, 4])
        >>> acknowledged.settle([1, 3, 6])
        (3, [6])
        """
        new = set(tags)
        upto: int | None = None
        first, ahead = self._first, self._ahead
        while True:
            if first in new:
                new.discard(first)
                upto = first
            elif first in ahead:
                ahead.discard(first)
            else:
                break
            first += 1
        self._first = first
        ahead |= new
        return upto, sorted(new)
