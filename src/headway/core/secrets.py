"""Keep passwords out of what is kept and shown.

Better too much hidden than too little. Every pattern is bounded: an exception may carry a message
of any length, and looking through it must not hold up the process.
"""

import re
from functools import lru_cache

_HIDDEN = "***"
_WORDS = (
    "passwor[dt]|passwd|passphrase|pwd|secret|token|credential|authorization|"
    "(?:api|access|account|private)[_-]?key"
)
_IN_URL = re.compile(
    r"(?P<before>[a-z][a-z0-9+.-]{0,20}://)(?P<user>[^\s/:@]{0,100}:)?[^\s\"']{1,200}(?=@)",
    re.IGNORECASE,
)
_NAMED = re.compile(
    rf"(?P<before>(?:{_WORDS}|\bpw)[\w-]{{0,40}}[\"']?\s{{0,3}}[=:]\s{{0,3}})"
    r"(?P<open>[\"'\[(]?)"
    r"(?:(?:bearer|basic|digest|token)\s{1,3})?"
    r"(?P<value>(?:(?<=\")[^\"]{1,500}|(?<=')[^']{1,500}|(?<=[\[(])[^\])]{1,500}|[^\s\"',;&)}\]]{1,500}))",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"(?P<before>--[\w-]{{0,40}}(?:{_WORDS})[\w-]{{0,20}}\s)\S{{1,500}}", re.IGNORECASE
)
_WORD = re.compile(_WORDS + r"|\bpw|://", re.IGNORECASE)
_MOST = 100_000


@lru_cache(maxsize=256)
def hidden(text: str) -> str:
    """Give a text with the passwords in it hidden.

    >>> hidden("cannot reach amqp://user:s3cret@broker:5672, password='x'")
    "cannot reach amqp://user:***@broker:5672, password='***'"
    """
    if len(text) > _MOST:
        text = f"{text[: _MOST // 2]} ... {text[-_MOST // 2 :]}"
    if _WORD.search(text) is None:
        return text
    text = _IN_URL.sub(lambda found: f"{found['before']}{found['user'] or ''}{_HIDDEN}", text)
    text = _OPTION.sub(lambda found: f"{found['before']}{_HIDDEN}", text)
    return _NAMED.sub(lambda found: f"{found['before']}{found['open']}{_HIDDEN}", text)
