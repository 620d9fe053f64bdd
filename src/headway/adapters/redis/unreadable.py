"""Keys of which something is kept that is not ours: said of them alone, while others go on."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from redis.exceptions import ResponseError

from headway.core.showing import shown
from headway.ports.sequences import UnreadableKeyError

_LOG = logging.getLogger("headway")


def is_unreadable(key: str, answer: Any) -> bool:
    """Say whether a decision could not be made because of what is kept of the key, and log it."""
    if not isinstance(answer, list) or answer[0] != b"E":
        return False
    _LOG.error("%s", _error(key, answer))
    return True


def refuse_unreadable(key: str, answer: Any) -> None:
    if isinstance(answer, list) and answer[0] == b"E":
        raise _error(key, answer)


@contextmanager
def reading(key: str) -> Iterator[None]:
    """Say whose it is, where what is kept cannot be read."""
    try:
        yield
    except (ValueError, IndexError, OverflowError) as error:
        raise UnreadableKeyError(key, str(error)) from error
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        raise UnreadableKeyError(key, str(error)) from error


def keys_of(members: Iterable[bytes]) -> Iterator[str]:
    """Read the names in an index; one that is no text was written by somebody else."""
    for member in members:
        try:
            yield member.decode()
        except UnicodeDecodeError:
            name = shown(repr(member))
            _LOG.error("The index of due keys holds %s, which is no key: ZREM it", name)


def _error(key: str, answer: Any) -> UnreadableKeyError:
    return UnreadableKeyError(key, answer[1].decode(errors="backslashreplace"))
