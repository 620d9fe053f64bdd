"""Text from outside, made fit for one line: it must not forge another, nor fill the screen."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from headway.core.failure import words
from headway.core.secrets import hidden

_LONGEST = 500
_MOST_CAUSES = 3


def shown(text: str) -> str:
    r"""Give the text with everything escaped that is not plainly visible, and cut if very long.

    >>> shown("a\nERROR: all is lost")
    'a\\nERROR: all is lost'
    """
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "..."
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def described(error: BaseException) -> str:
    """Describe an exception on one line: its type, its message and its causes, without secrets.

    >>> error = TimeoutError("no answer")
    >>> error.__cause__ = OSError("refused by amqp://bob:s3cret@broker")
    >>> described(error)
    'TimeoutError: no answer (caused by OSError: refused by amqp://bob:***@broker)'
    """
    cause = described_cause(error)
    return f"{_line(error)} ({cause})" if cause else _line(error)


def described_cause(error: BaseException) -> str:
    """Describe what an exception was raised from; empty if nothing is known of it."""
    return ", ".join(f"caused by {_line(cause)}" for cause in _causes(error))


def function_name(function: Callable[..., Any]) -> str:
    """Give the name that logs have for a function, a method or a callable object."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what `raise ... from` names, and the first error of a group, which says nothing."""
    for _ in range(_MOST_CAUSES):  # a chain can be a ring
        cause = error.__cause__
        if cause is None and isinstance(error, BaseExceptionGroup):
            cause = error.exceptions[0]
        if cause is None:
            return
        yield cause
        error = cause


def _line(error: BaseException) -> str:
    said = words(error)
    name = type(error).__name__
    return shown(hidden(f"{name}: {said}" if said else name))
