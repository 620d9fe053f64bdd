"""Say the cure where Python's message about a mistake in a handler names neither line nor call."""

import re

from headway.core.failure import words
from headway.core.origin import is_library, place

_NO_COROUTINE = (
    "a coroutine was expected, got ",
    "An asyncio.Future, a coroutine or an awaitable is required",
)
"""What `asyncio.run` and `run_until_complete` say."""
_NO_AWAIT = re.compile(r"can't be (used in 'await' expression|awaited)")
_LONGEST = 120


def name_cure(error: BaseException, *, is_plain: bool) -> None:
    """Add line and cure to the message of an error. `is_plain`: the handler is no coroutine."""
    if type(error) not in {AttributeError, TypeError, ValueError}:
        return
    said = words(error)
    cure = _cure(said, is_plain=is_plain)
    line = _line(error, of_user=is_plain) if cure else ""
    if line:
        error.args = (f"{said:.{_LONGEST}}: {line} {cure}.",)


def _cure(said: str, *, is_plain: bool) -> str:
    if said == "immutable type: 'Event'":
        return (
            "sets a field of the event, which stays as it came. Keep the value in a variable, or "
            "publish it"
        )
    is_await = _NO_AWAIT.search(said) is not None
    if is_plain and (is_await or said.startswith(_NO_COROUTINE)):
        return (
            "awaits, or runs in an event loop, what is no coroutine. If it is a call of work or "
            "work.documents, write it without await and asyncio.run: in a plain handler such a "
            "call returns its result"
        )
    if is_await and "NoneType" in said:
        return (
            "awaits a call that returns nothing. If it is work.publish, put_off or transaction, or "
            "insert_new, add, increment or update of work.documents, write it without await"
        )
    return ""


def _line(error: BaseException, *, of_user: bool) -> str:
    """Name the innermost line of all, or of the user's."""
    found, at = None, error.__traceback__
    while at is not None:
        if found is None or not of_user or not is_library(at.tb_frame.f_code):
            found = at
        at = at.tb_next
    return "" if found is None else place(found.tb_frame.f_code, found.tb_lineno)
