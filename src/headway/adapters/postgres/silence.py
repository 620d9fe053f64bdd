"""Nobody answers, and it took long to find that out: whoever asks soon after is told the same."""

import asyncio

_ASKED_ONCE = 1.0
"""Seconds."""


class Silence:
    """Remembers for a moment that a server did not answer in time."""

    def __init__(self) -> None:
        self._said = ""

    def check(self) -> None:
        """Raise what was heard just now, if anything was."""
        if self._said:
            raise ConnectionError(self._said)

    def heard(self, error: Exception, explained: Exception) -> Exception:
        """Take down an error, if it is one that takes long; give its explanation."""
        if isinstance(error, TimeoutError):
            self._said = str(explained)
            asyncio.get_running_loop().call_later(_ASKED_ONCE, self._forget)
        return explained

    def _forget(self) -> None:
        self._said = ""
