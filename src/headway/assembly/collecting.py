"""How a worker's process looks for garbage."""

import gc

_NEW_OBJECTS = 20_000


def collect_seldom() -> None:
    """Leave what was loaded alone, and look for cycles once in a few thousand events.

    What belongs to an event is freed as its references go. With Python's own settings its garbage
    collector looks at every event's objects several times, a tenth of all time in a busy worker,
    and finds nothing. Only for a process that is ours: a library does not set this for its host.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 20)
