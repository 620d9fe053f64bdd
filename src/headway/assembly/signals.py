"""Let signals be noted by the event loop, so that nothing is ever raised in the middle of work."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress


@contextmanager
def obeying(
    orders: Mapping[signal.Signals, Callable[[], object]],
    *,
    heard: Callable[[int], None] = lambda _number: None,
) -> Iterator[None]:
    """Call what is ordered for a signal, while the block lasts; then it means what it meant.

    `heard` is called with the number of every signal in a thread of its own, also while the event
    loop is blocked.
    """
    loop = asyncio.get_running_loop()
    taken = []
    for number, order in orders.items():
        try:
            loop.add_signal_handler(number, order)
        except (NotImplementedError, ValueError, RuntimeError):
            continue  # not on this system, or not in the main thread: the caller stops it
        taken.append(number)
    try:
        if taken:
            with _overheard(heard):
                yield
        else:
            yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


@contextmanager
def _overheard(heard: Callable[[int], None]) -> Iterator[None]:
    """Read in a thread what Python writes for the event loop when a signal comes, and pass it on.

    Python has one descriptor for the numbers of signals. A handler of Python itself would not do:
    it runs in the main thread, which may be waiting for the operating system.
    """
    ours, written = socket.socketpair()
    written.settimeout(0)
    behind = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)

    def listen() -> None:
        while numbers := ours.recv(4096):
            for number in numbers:
                heard(number)
            with suppress(OSError):  # it is full, and wakes the loop all the same
                os.write(behind, numbers)

    thread = threading.Thread(target=listen, name="headway-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        now = signal.set_wakeup_fd(behind, warn_on_full_buffer=False)
        if now != written.fileno():  # taken over by others since
            signal.set_wakeup_fd(now, warn_on_full_buffer=False)
        written.close()
        thread.join()
        ours.close()
