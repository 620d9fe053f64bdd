"""What happened in a simulated world, to be read when something went wrong."""

import asyncio


class ViolationError(AssertionError):
    """A promise was broken."""


class History:
    """Every step in its order, with the time."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, str, str, str]] = []

    def add(self, who: str, what: str, about: str = "") -> None:
        self._steps.append((asyncio.get_running_loop().time(), who, what, about))

    def told(self, last: int = 400) -> str:
        """Give the last steps, one on each line."""
        left_out = max(len(self._steps) - last, 0)
        lines = [f"... {left_out} steps before"] if left_out else []
        for at, who, what, about in self._steps[-last:]:
            lines.append(f"{at:10.3f}  {who:<9} {what:<22} {about}".rstrip())
        return "\n".join(lines)
