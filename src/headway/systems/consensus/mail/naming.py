"""Paths in events: the name of a file may be any bytes, and an event is text."""

import os
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

_SCHEME = "file://"


def in_text(path: str) -> str:
    r"""Give a path as an event can hold it: one that is no text becomes a file:// URL.

    >>> in_text("/mail/a.mbox"), in_text("/mail/\udcff.mbox")
    ('/mail/a.mbox', 'file:///mail/%FF.mbox')
    """
    if _is_text(path):
        return path
    return _SCHEME + quote(os.fsencode(Path.cwd() / path))


def as_path(given: str) -> str:
    """Give the path that an event holds.

    >>> as_path("/mail/a%20b.mbox"), as_path("file:///mail/a%20b.mbox")
    ('/mail/a%20b.mbox', '/mail/a b.mbox')
    """
    if not given.startswith(_SCHEME + "/"):
        return given
    return os.fsdecode(unquote_to_bytes(given.removeprefix(_SCHEME)))


def readable(name: str) -> str:
    r"""Give a name as text; what is none in it is seen as such.

    >>> readable("a\udcff")
    'a\\udcff'
    """
    return name.encode(errors="backslashreplace").decode()


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
