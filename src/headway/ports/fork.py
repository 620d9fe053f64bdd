"""A process that was forked has nothing of its parent's: no sockets, no files, no event loop.

`subprocess` and what else goes on as another program needs none of this: descriptors are not passed
on to it. A child that stays the same program, as those of `os.fork` and of multiprocessing do, has
copies of all of them: it would keep connections and ports open that its parent has closed.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn, Protocol
from weakref import WeakSet

_STANDARD_ERROR = 2
ENDED_IN_CHILD = 1
"""What a forked child ends with that came back to the worker."""


class Owner(Protocol):
    """Has something that a forked child must not keep."""

    def in_child(self) -> None:
        """Give up, in a child that was just forked, what belongs to its parent."""
        ...


_owners: WeakSet[Owner] = WeakSet()


def own(owner: Owner) -> None:
    """Have an owner told in every child, for as long as the owner is there."""
    _owners.add(owner)


def close_in_child(descriptors: Iterable[int]) -> None:
    """Close copies of the parent's descriptors.

    Their numbers stay taken: an object of the parent's that is thrown away later closes nothing
    that the child has opened since.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        with suppress(OSError):  # it was closed before
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def end_child() -> NoReturn:
    """End a child that came back from a handler: the event is its parent's."""
    words = (
        f"headway: process {os.getpid()} was forked by a handler of worker {os.getppid()} and came "
        "back from it: it ends here, and the worker goes on with the event. End such a child with "
        "os._exit, or use subprocess or multiprocessing\n"
    )
    with suppress(OSError):
        os.write(_STANDARD_ERROR, words.encode())
    os._exit(ENDED_IN_CHILD)


def _forked() -> None:
    owners = list(_owners)
    _owners.clear()  # a child of the child has nothing of theirs any more
    for owner in owners:
        with suppress(OSError):  # it had nothing open any more
            owner.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
