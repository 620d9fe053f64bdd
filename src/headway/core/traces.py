"""Tracebacks as text, and quickly: a thousand events that fail alike have the same stack.

They go to logs and letters, so passwords in them are hidden.
"""

import traceback
from types import CodeType, TracebackType

from headway.core.secrets import hidden

_Stack = tuple[tuple[CodeType, int, int], ...]
"""Each frame's code, instruction and line: two stacks with the same are written the same."""

_HEAD = "Traceback (most recent call last):\n"
_BY_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_IN_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
_MOST_STACKS = 500
_LONGEST_CHAIN = 20
_ADDED_TO = (SyntaxError, NameError, AttributeError, ImportError)
"""Python says more than their message: where it is, or what may have been meant."""
_UNNAMED = ("__main__", "builtins")

_known: dict[_Stack, str] = {}


def trace(error: BaseException) -> str:
    """Write an exception with its stack and its causes, as Python does, but without passwords."""
    try:
        text = _chain(error, _LONGEST_CHAIN) or hidden("".join(traceback.format_exception(error)))
        # A lone surrogate in a message would make the handler of a log fail.
        return text if text.isascii() else text.encode(errors="backslashreplace").decode()
    except Exception as second:  # noqa: BLE001 (an exception can be made so that it cannot be shown)
        return f"(it cannot be shown: {type(second).__name__})"


def _chain(error: BaseException, depth: int) -> str | None:
    """None: it is of a kind that Python has to write itself."""
    if isinstance(error, BaseExceptionGroup) or depth == 0:
        return None
    before, link = error.__cause__, _BY_CAUSE
    if before is None and not error.__suppress_context__:
        before, link = error.__context__, _IN_CONTEXT
    first = "" if before is None else _chain(before, depth - 1)
    if first is None:
        return None
    stack = "" if error.__traceback__ is None else _HEAD + _written(error.__traceback__)
    return (first + link if first else "") + stack + hidden(_last_line(error))


def _last_line(error: BaseException) -> str:
    kind = type(error)
    module = kind.__module__
    if isinstance(error, _ADDED_TO) or hasattr(error, "__notes__") or not isinstance(module, str):
        return "".join(traceback.format_exception_only(error))
    try:
        words = str(error)
    except BaseException:  # noqa: BLE001 (whatever it raises, Python has a word for it)
        return "".join(traceback.format_exception_only(error))
    name = kind.__qualname__ if module in _UNNAMED else f"{module}.{kind.__qualname__}"
    return f"{name}: {words}\n" if words else f"{name}\n"


def _written(trace: TracebackType) -> str:
    frames = []
    at: TracebackType | None = trace
    while at is not None:
        frames.append((at.tb_frame.f_code, at.tb_lasti, at.tb_lineno))
        at = at.tb_next
    stack = tuple(frames)
    known = _known.get(stack)
    if known is None:
        if len(_known) >= _MOST_STACKS:
            _known.clear()
        known = _known[stack] = hidden("".join(traceback.format_tb(trace)))
    return known
