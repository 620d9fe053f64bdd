"""Name a function of the user's by its place in the code: `orders.py:12 on_placed`."""

import functools
import inspect
import sys
import sysconfig
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_HEADWAY = __file__.removesuffix("origin.py").removesuffix("core/").removesuffix("core\\")
_LIBRARIES = (
    *(path for name in ("stdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))),
    *(
        f"{_HEADWAY}{layer}"
        for layer in ("core", "ports", "runtime", "adapters", "assembly", "testing")
    ),
)


def origin(function: object) -> str:
    """Give file, line and name of a function, or of whatever else can be called.

    >>> origin(origin)
    'origin.py:21 origin'
    """
    plain: Any = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    if callable(plain):
        plain = inspect.unwrap(plain)
    name = getattr(plain, "__qualname__", type(plain).__qualname__).replace("<locals>.", "")
    if not hasattr(plain, "__code__") and not inspect.isroutine(plain):  # an object with __call__
        plain = getattr(plain, "__call__", plain)  # noqa: B004
    code = getattr(plain, "__code__", None)
    return f"{place(code, code.co_firstlineno)} {name}" if isinstance(code, CodeType) else name


def place(code: CodeType, line: int | None) -> str:
    """Give the file and a line of some code.

    >>> place(place.__code__, 7)
    'origin.py:7'
    """
    return f"{code.co_filename.replace(chr(92), '/').rpartition('/')[2]}:{line}"


def caller(depth: int) -> tuple[CodeType, int]:
    """Give the code and the line of a caller: 1 is the caller of the function that asks."""
    frame = sys._getframe(depth + 1)  # noqa: SLF001 (the public way reads the source)
    return frame.f_code, frame.f_lineno


def users_frame(frame: FrameType | None) -> FrameType | None:
    """Give the innermost frame that belongs to no library; the innermost of all if none does."""
    found = frame
    while found is not None and is_library(found.f_code):
        found = found.f_back
    return found or frame


def users_line() -> str:
    """Give the file and line of the user's that called us."""
    frame = users_frame(sys._getframe(1))  # noqa: SLF001 (the public way reads the source)
    assert frame is not None  # noqa: S101 (this function has one)
    return place(frame.f_code, frame.f_lineno)


def is_library(code: CodeType) -> bool:
    """Say whether code belongs to Python or to an installed package."""
    return code.co_filename.startswith((*_LIBRARIES, "<"))


def waits_at(awaitable: object) -> str:
    """Name the line of the user's at which something awaitable waits, or has not started."""
    innermost, users = None, None
    while awaitable is not None:
        frame = next(
            (found for name in _FRAMES if (found := getattr(awaitable, name, None)) is not None),
            None,
        )
        if isinstance(frame, FrameType):
            innermost = frame
            users = users if is_library(frame.f_code) else frame
        awaitable = next(
            (found for name in _AWAITED if (found := getattr(awaitable, name, None)) is not None),
            None,
        )
    found = users or innermost
    return "an unknown line" if found is None else place(found.f_code, found.f_lineno)


_FRAMES = ("cr_frame", "ag_frame", "gi_frame")
_AWAITED = ("cr_await", "ag_await", "gi_yieldfrom")


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Say whether a function has to be awaited; a wrapper counts as it is, or as what it wraps."""
    candidates = (function, inspect.unwrap(function), getattr(function, "__call__", None))  # noqa: B004
    return any(inspect.iscoroutinefunction(each) for each in candidates)
