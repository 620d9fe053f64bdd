"""Chance."""

from typing import Protocol


class Chance(Protocol):
    """Rolls the dice for jitter and makes unique tokens."""

    def draw(self) -> float:
        """Give a number from 0 up to, not including, 1."""
        ...

    def token(self) -> str:
        """Give a text that no other call of any process gives."""
        ...
