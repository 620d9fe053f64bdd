"""How much a worker takes at once: enough to stay busy, not more than it can soon do."""

from datetime import datetime, timedelta

_SOON = timedelta(milliseconds=250)
_LATE = timedelta(seconds=1)


class Prefetch:
    """Grows while what was taken is done at once, shrinks while it lies about.

    Events that lie in one worker's hands are late if others have nothing to do, and come back all
    together if it dies.
    """

    def __init__(self, concurrency: int, fixed: int | None = None, most: int = 512) -> None:
        self._least = fixed or 2 * concurrency
        self._most = fixed or max(most, self._least)
        self.target = self._least
        self._since: datetime | None = None

    def took(self, now: datetime) -> None:
        """Take down that the hands were filled."""
        self._since = self._since or now

    def emptied(self, now: datetime) -> None:
        """Take down that half of what is in hand at most is left."""
        if self._since is None:
            return
        lay = now - self._since
        self._since = None
        if lay < _SOON:
            self.target = min(self.target * 2, self._most)
        elif lay > _LATE:
            self.target = max(self.target // 2, self._least)
