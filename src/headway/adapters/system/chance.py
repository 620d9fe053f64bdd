"""The real dice."""

import os
import random
import secrets

_DRAWN_TOGETHER = 256


class SystemChance:
    """Python's generator for jitter, the system's for tokens."""

    def __init__(self) -> None:
        self._tokens: list[str] = []
        # A forked child must not give the tokens that its parent gives.
        os.register_at_fork(after_in_child=self._tokens.clear)

    def draw(self) -> float:
        return random.random()

    def token(self) -> str:
        """Give 32 hexadecimal digits that no other call gives."""
        try:
            return self._tokens.pop()
        except IndexError:  # one call of the system for many tokens: it costs more than the rest
            digits = secrets.token_hex(16 * _DRAWN_TOGETHER)
            first, *rest = (digits[at : at + 32] for at in range(0, len(digits), 32))
            self._tokens.extend(rest)
            return first


CHANCE = SystemChance()
