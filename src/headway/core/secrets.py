"""Keep passwords out of what is kept and shown: one rule for logs, letters and reports of errors.

Better too much hidden than too little. Every pattern is bounded: an exception may carry a message
of any length, and looking through it must not hold up the process.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_HIDDEN = "***"
_WORDS = (
    "passwor[dt]|passwd|passphrase|pwd|secret|token|credential|authorization|"
    "(?:api|access|account|private)[ _-]?key"
)
_SHORT = "pass|auth|bearer|jwt"
"""Words that other texts are full of: taken for a name only where nothing else can be meant."""
_SCHEMES = "bearer|basic|digest|token|api-?key|negotiate|ntlm|oauth|jwt|hawk|aws4-hmac-sha256"
_QUOTE = r"\\{0,3}[\"']?"
"""A text in a text has its quotes escaped."""
_VALUE = (
    r"(?:b(?=[\"']))?\\{0,3}[\"'\[({]?)"
    r"(?:(?<=[^\\]\")(?:[^\"\\]|\\.){1,4000}|(?<=\")[^\"]{1,4000}|"
    r"(?<=[^\\]')(?:[^'\\]|\\.){1,4000}|(?<=')[^']{1,4000}|"
    rf"(?<=[\[({{])[^\])}}]{{1,4000}}|(?:(?:{_SCHEMES})\s{{1,3}})?[^\s\"',;&)}}\]]{{1,4000}})"
)
"""The end of `before`, and all that is in the quotes or brackets opened there, or one word."""
_IN_URL = re.compile(r"(?P<before>://)(?P<user>[^\s/:@]{0,100}:)?[^\s\"']{1,500}(?=@)")
_NAMED = re.compile(
    rf"(?P<before>(?:{_WORDS}|\bpw)[\w-]{{0,40}}(?: provided)?{_QUOTE}\s{{0,3}}[=:]\s{{0,3}}"
    + _VALUE,
    re.IGNORECASE,
)
_SHORT_NAMED = re.compile(
    rf"(?P<before>(?<![a-z0-9])(?:{_SHORT})(?:=|{_QUOTE}(?<=[\"'])\s{{0,3}}[=:])\s{{0,3}}{_VALUE}",
    re.IGNORECASE,
)
_PAIR = re.compile(
    rf"(?P<before>\(b?[\"'][\w-]{{0,40}}(?:{_WORDS})[\w-]{{0,40}}[\"'],\s{{0,3}}b?[\"'])"
    r"[^\"']{1,4000}",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"(?P<before>--[\w-]{{0,40}}(?:{_WORDS})[\w-]{{0,20}}\s{{1,3}})\S{{1,500}}", re.IGNORECASE
)
_COOKIE = re.compile(
    rf"(?P<before>\bcookie{_QUOTE}\s{{0,3}}[=:]\s{{0,3}}{_QUOTE})[^\"'\r\n]{{1,4000}}",
    re.IGNORECASE,
)
_QUERY = re.compile(
    r"(?P<before>[?&](?:key|sig|signature|x-amz-signature|x-goog-signature)=)[^\s&\"'#<>]{1,2000}",
    re.IGNORECASE,
)
# What follows the name of a scheme is a secret, unless it is plainly a word about it.
_BEARER = re.compile(
    r"(?P<before>\bbearer\s{1,3})"
    r"(?!(?:tokens?|auth\w{0,20}|schemes?|headers?|realm|error|format|prefix|credentials?|missing|"
    r"required|invalid|expired|expected|security|should|cannot)\b)"
    r"[^\s\"',;)}\]<>\\]{6,4000}",
    re.IGNORECASE,
)
_BASIC = re.compile(
    r"(?P<before>\b(?i:basic)\s{1,3})"
    r"(?!(?:[A-Z]?[a-z]{1,30}|[A-Z]{1,30}|[0-9]{1,30})(?![\w+/=]))"
    r"[A-Za-z0-9+/]{4,4000}={0,2}(?![\w.-]\w)"
)
_SHAPED = re.compile(
    r"(?P<before>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[^-]{1,20000}|\b(?:sk-[\w-]{16,200}|"
    r"gh[pousr]_\w{20,255}|github_pat_\w{20,255}|glpat-[\w-]{16,200}|xox[abprs]-[\w-]{10,200}|"
    r"AKIA[0-9A-Z]{16}|AIza[\w-]{30,60}|eyJ[\w-]{8,4000}\.[\w-]{4,4000}(?:\.[\w-]{0,4000})?)"
)
"""Keys that are known by how they look, such as `sk-...`, and tokens that are signed JSON."""
_KEYS = tuple(
    f"{whose}{between}key"
    for whose in ("api", "access", "account", "private")
    for between in ("", " ", "_", "-")
)
_NAMES = (
    *("passwor", "passwd", "passphrase", "pw", "secret", "token", "credential", "authorization"),
    *_KEYS,
)
_SHAPES = (
    *("private key", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox"),
    *("akia", "aiza", "eyj"),
)
_RULES = (
    (("://",), (_IN_URL,)),
    (_NAMES, (_OPTION, _PAIR, _NAMED)),
    (tuple(_SHORT.split("|")), (_SHORT_NAMED,)),
    (("cookie",), (_COOKIE,)),
    (("key=", "sig=", "signature="), (_QUERY,)),
    (("bearer",), (_BEARER,)),
    (("basic",), (_BASIC,)),
    (_SHAPES, (_SHAPED,)),
)
"""Patterns behind the texts without which they find nothing: these are looked for quickly."""
_NAME = re.compile(
    rf"(?:{_WORDS}|\bpw|\bcookie)[\w-]{{0,40}}$|"
    rf"(?:^|[^a-z0-9]|(?-i:(?<=[a-z])(?=[A-Z])))(?:{_SHORT}|cookies?)$",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"tokens(?:_|$)|count$", re.IGNORECASE)
"""Names of numbers that are no secrets, though they are of such."""
_MOST = 100_000
_BEYOND = 21_000
"""No secret is longer: where a text is cut, so much more is looked through than is shown."""
_OFTEN = 2_000
"""Up to this length texts come again and again, and are remembered."""
_DEEPEST = 20


def hidden(text: str) -> str:
    """Give a text with the passwords, keys and tokens in it hidden.

    >>> hidden("cannot reach amqp://user:s3cret@broker:5672, password='x'")
    "cannot reach amqp://user:***@broker:5672, password='***'"
    >>> hidden("refused: Basic dXNlcjpzM2NyZXQ=")
    'refused: Basic ***'
    """
    if len(text) <= _OFTEN:
        return _remembered(text)
    if len(text) <= _MOST:
        return _searched(text)
    # Cut last: half a password is not known for one.
    first = _searched(text[: _MOST // 2 + _BEYOND])[:-_BEYOND]
    last = _searched(text[-_MOST // 2 - _BEYOND :])[_BEYOND:]
    return f"{first} ... {last}"


def _searched(text: str) -> str:
    lower = text.lower()
    for needed, patterns in _RULES:
        if any(each in lower for each in needed):
            for pattern in patterns:
                text = pattern.sub(_without, text)
    return text


_remembered = lru_cache(maxsize=256)(_searched)


def without_secrets(value: Any) -> Any:
    """Hide secrets in what JSON can hold, by what they are named and by what they look like."""
    return _plain(value, "", 0)


def _plain(value: Any, name: str, depth: int) -> Any:
    if depth > _DEEPEST:
        return "..."
    if name and _is_secret(name, value):
        return _HIDDEN
    match value:
        case Mapping():
            return {
                hidden(str(key)): _plain(inner, str(key), depth + 1) for key, inner in value.items()
            }
        case list() | tuple():
            return [_plain(inner, "", depth + 1) for inner in value]
        case str():
            return hidden(value)
        case _:
            return value


def _is_secret(name: str, value: Any) -> bool:
    """Say whether such a value under such a name has to be hidden, whatever it is made of."""
    if value is None or isinstance(value, bool) or (isinstance(value, str) and not value):
        return False
    if isinstance(value, int | float) and _COUNTED.search(name):
        return False
    return _NAME.search(name) is not None


def _without(found: re.Match[str]) -> str:
    parts = found.groupdict()
    return f"{parts['before'] or ''}{parts.get('user') or ''}{_HIDDEN}"
