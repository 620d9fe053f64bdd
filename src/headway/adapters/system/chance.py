"""The real dice."""

import random
import secrets


class SystemChance:
    """Python's generator for jitter, the system's for tokens."""

    def draw(self) -> float:
        return random.random()

    def token(self) -> str:
        return secrets.token_hex(16)  # a UUID takes three times as long to make


CHANCE = SystemChance()
