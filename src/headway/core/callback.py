"""Finish a callback of `work.transaction`: plain or a coroutine function, it must have run."""

import inspect
from typing import Any

from headway.core.origin import is_library, origin, place, waits_at

_NO_LOOP = "no running event loop"


def drive(callback: object, answer: Any) -> None:
    """Run a callback's coroutine to its end, where nothing can be waited for.

    Raises:
        TypeError: It suspended, or gave back something of which nothing has run.
    """
    if not inspect.isawaitable(answer):
        refuse_unrun(callback, answer)
        return
    steps: Any = answer if inspect.iscoroutine(answer) else answer.__await__()
    try:
        steps.send(None) if hasattr(steps, "send") else next(steps)
    except StopIteration as ended:
        refuse_unrun(callback, ended.value)
        return
    except RuntimeError as error:
        if str(error) != _NO_LOOP:
            raise
        raise _suspended(callback, _raised_at(error)) from None
    where = waits_at(steps)
    if hasattr(steps, "close"):
        steps.close()
    raise _suspended(callback, where)


def refuse_unrun(callback: object, answer: Any) -> None:
    """Refuse what a callback gave back if its statements are still in it."""
    if inspect.iscoroutine(answer) or inspect.isgenerator(answer):
        answer.close()
    elif not (inspect.isasyncgen(answer) or inspect.isawaitable(answer)):
        return
    raise TypeError(
        f"Invalid work.transaction callback ({origin(callback)}): it returned a "
        f"{type(answer).__name__}, of which nothing has run. Use a function, plain or async, that "
        "has done its work when it returns."
    )


def _suspended(callback: object, where: str) -> TypeError:
    return TypeError(
        f"Invalid work.transaction callback ({origin(callback)}): it suspended at {where}, and on "
        "this store it runs inside the one commit of many events, which cannot wait. Await what it "
        "needs in the handler, before work.transaction."
    )


def _raised_at(error: BaseException) -> str:
    """Name the last line of the user's that a traceback went through."""
    found, trace = "an unknown line", error.__traceback__
    while trace is not None:
        if not is_library(trace.tb_frame.f_code):
            found = place(trace.tb_frame.f_code, trace.tb_lineno)
        trace = trace.tb_next
    return found
