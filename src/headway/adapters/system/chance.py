"""The real dice."""

import random
import uuid


class SystemChance:
    """Python's generator for jitter, the system's for tokens."""

    def draw(self) -> float:
        return random.random()

    def token(self) -> str:
        return uuid.uuid4().hex
