"""Keep passwords out of what is kept and shown."""

import re

_HIDDEN = "***"
_IN_URL = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s@]+(?=@)", re.IGNORECASE)
_NAMED = re.compile(
    r"(?P<before>\b(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?token|authorization)"
    r"[\"']?\s*[=:]\s*[\"']?(?:bearer\s+|basic\s+)?)[^\s\"',;&)}\]]+",
    re.IGNORECASE,
)


def hidden(text: str) -> str:
    """Give a text with the passwords in it hidden.

    >>> hidden("cannot reach amqp://user:s3cret@broker:5672, password='x'")
    "cannot reach amqp://user:***@broker:5672, password='***'"
    """
    text = _IN_URL.sub(rf"\g<before>{_HIDDEN}", text)
    return _NAMED.sub(rf"\g<before>{_HIDDEN}", text)
