"""A connection that can be lent to a body: it may write, and may not end the transaction.

What the body says is looked through before it is sent. A COMMIT would store half a unit, and what
it changed about the connection itself would stay for whoever comes next.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg

from headway.core.errors import TransactionEndedError

SAVEPOINT = "headway_unit"

_TOKEN = re.compile(
    r"""
    --[^\n]* | /\*.*?\*/ | \s+
    | [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?P<quoted>(?:[^"]|"")*)"
    | \$(?P<tag>[A-Za-z_]\w*)?\$ .*? \$(?P=tag)?\$
    | (?P<word>[A-Za-z_][\w$]*) | (?P<end>;) | .
    """,
    re.VERBOSE | re.DOTALL,
)
_ENDS = frozenset({"abort", "commit", "end"})
_FILLERS = frozenset({"savepoint", "to", "transaction", "work"})
_MOST_WORDS = 5

_ENDED = (
    "the body tried to end the transaction that it shares with its event ({}): leave that to "
    "Headway, and use `async with connection.transaction()`, which makes savepoints"
)
_CLOSED = "the body tried to {} the connection that it was lent: leave that to Headway"

CLEAN = """
close all; set session authorization default; reset all; unlisten *;
select pg_advisory_unlock_all(); discard temp; discard sequences
"""
"""Undoes what a body may have left behind in its session."""


class Session(asyncpg.Connection):  # type: ignore[misc] # (asyncpg brings no types)
    """A connection of the pool."""

    __slots__ = ("changed", "denied", "lent")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lent = False
        self.changed = False
        """A body taught it other codecs: it is not used again."""
        self.denied: str | None = None
        """Why the body was told no, even if it did not listen."""

    def get_reset_query(self) -> str:
        # Nothing of ours outlives its transaction; what bodies leave is undone by CLEAN.
        return ""

    def lend(self) -> "Session":
        """Watch over what is said from now on, until `lent` is False; give the session itself."""
        self.denied, self.lent = None, True
        return self

    def look_at(self, statement: str) -> None:
        if self.lent:
            wrong = ending(statement)
            if wrong is not None:
                self.deny(_ENDED.format(wrong))

    def deny(self, why: str) -> None:
        self.denied = why
        raise TransactionEndedError(why)


def _looking(name: str) -> Callable[..., Any]:
    method = getattr(asyncpg.Connection, name)

    def looks(self: Session, query: str, *args: Any, **kwargs: Any) -> Any:
        self.look_at(query)
        return method(self, query, *args, **kwargs)

    return looks


def _denied(name: str) -> Callable[..., Any]:
    method = getattr(asyncpg.Connection, name)

    def denies(self: Session, *args: Any, **kwargs: Any) -> Any:
        if self.lent:
            self.deny(_CLOSED.format(name))
        return method(self, *args, **kwargs)

    return denies


def _changing(name: str) -> Callable[..., Any]:
    method = getattr(asyncpg.Connection, name)

    def changes(self: Session, *args: Any, **kwargs: Any) -> Any:
        self.changed = True
        return method(self, *args, **kwargs)

    return changes


for _names, _made in (
    (("cursor", "execute", "executemany", "fetch", "fetchrow", "fetchval", "prepare"), _looking),
    (("close", "reset", "terminate"), _denied),
    (("reset_type_codec", "set_builtin_type_codec", "set_type_codec"), _changing),
):
    for _name in _names:
        setattr(Session, _name, _made(_name))
if hasattr(asyncpg.Connection, "fetchmany"):  # since asyncpg 0.30
    Session.fetchmany = _looking("fetchmany")


def ending(query: str) -> str | None:
    """Name the first statement that would end the transaction, if there is one.

    >>> ending("insert into own values ('commit; really'); /* now */ COMMIT")
    'COMMIT'
    >>> ending("rollback to savepoint mine; release mine")
    """
    if "atomic" in query.lower():  # the body of a function: its END ends nothing else
        return None
    for words in _statements(query):
        first, *others = (word.lower() for word in words)
        named = [word for word in others if word not in _FILLERS]
        if (
            first in _ENDS
            or (first == "rollback" and "to" not in others)
            or (first == "prepare" and others[:1] == ["transaction"])
            or (first in {"release", "rollback"} and named[:1] == [SAVEPOINT])
        ):
            return " ".join(words[:2])
    return None


def _statements(query: str) -> Iterator[list[str]]:
    """Give the first words of each statement, without strings and comments."""
    words: list[str] = []
    for token in _TOKEN.finditer(query):
        if token["end"]:
            if words:
                yield words
            words = []
        elif len(words) < _MOST_WORDS and (word := token["word"] or token["quoted"]):
            words.append(word)
    if words:
        yield words
