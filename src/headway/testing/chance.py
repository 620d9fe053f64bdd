"""Dice for tests: always the same side up, or the same sequence every time."""

import itertools
import random  # noqa: TID251 (seeded, so there is no chance in it)


class Fixed:
    """Draws the same number each time: 0 for the shortest waits, 0.5 for those in the middle.

    Tokens are counted: `token-1`, `token-2` and so on, so they differ within one object only.

    >>> chance = Fixed(0.5)
    >>> chance.draw(), chance.token(), chance.token()
    (0.5, 'token-1', 'token-2')
    """

    def __init__(self, draw: float = 0.0) -> None:
        if not 0 <= draw < 1:
            raise ValueError(f"draw={draw!r} is not accepted: use a number from 0 to just below 1")
        self._draw = draw
        self._count = itertools.count(1)

    def draw(self) -> float:
        return self._draw

    def token(self) -> str:
        return f"token-{next(self._count)}"


class Seeded:
    """Draws numbers that look random and are the same for the same seed; so are its tokens."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 (no secret)

    def draw(self) -> float:
        return self._random.random()

    def token(self) -> str:
        return f"{self._random.getrandbits(128):032x}"
