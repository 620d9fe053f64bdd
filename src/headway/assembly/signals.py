"""Let signals be noted by the event loop, so that nothing is ever raised in the middle of work."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from headway.ports import fork

_OBEYED = {
    number for name in ("SIGTERM", "SIGINT", "SIGHUP") if (number := getattr(signal, name, None))
}


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
            with _overheard(heard, taken):
                yield
        else:
            yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


@contextmanager
def _overheard(heard: Callable[[int], None], numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Read in a thread what Python writes for the event loop when a signal comes, and pass it on.

    Python has one descriptor for the numbers of signals. A handler of Python itself would not do:
    it runs in the main thread, which may be waiting for the operating system.
    """
    ours, written = socket.socketpair()
    orders = _Orders(numbers, (ours.fileno(), written.fileno()))
    written.settimeout(0)
    behind = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)

    def listen() -> None:
        while read := ours.recv(4096):
            for number in read:
                heard(number)
            with suppress(OSError):  # it is full, and wakes the loop all the same
                os.write(behind, read)

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
        del orders


class _Orders:
    """The signals that are obeyed here: in a child that was forked they mean what they meant.

    Python would tell the parent of a signal to the child: the descriptor is that of both.
    """

    def __init__(self, numbers: Sequence[signal.Signals], descriptors: Sequence[int]) -> None:
        self._numbers = numbers
        self._descriptors = descriptors
        fork.own(self)

    def in_child(self) -> None:
        signal.set_wakeup_fd(-1)
        for number in self._numbers:
            usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
        fork.close_in_child(self._descriptors)


_mask = threading.local()


def _hold_signals() -> None:
    """Keep a child from being told of a signal before it has its own meaning of it."""
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, _OBEYED)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


if hasattr(os, "register_at_fork"):  # after those of `fork`: the orders are given up by then
    os.register_at_fork(
        before=_hold_signals, after_in_parent=_release_signals, after_in_child=_release_signals
    )
