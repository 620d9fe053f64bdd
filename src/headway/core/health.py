"""How a dependency is doing, as far as deciding needs to know."""

from enum import StrEnum


class Health(StrEnum):
    """The state of what the work depends on."""

    WELL = "well"
    SUSPECTED = "suspected"
    DOWN = "down"
