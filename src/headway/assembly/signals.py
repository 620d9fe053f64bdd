"""Let signals be noted by the event loop, so that nothing is ever raised in the middle of work."""

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def obeying(orders: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Call what is ordered for a signal, while the block lasts; then it means what it meant."""
    loop = asyncio.get_running_loop()
    taken = []
    for number, order in orders.items():
        try:
            loop.add_signal_handler(number, order)
        except (NotImplementedError, ValueError, RuntimeError):
            continue  # not on this system, or not in the main thread: the caller stops it
        taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
