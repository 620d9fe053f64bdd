"""Hide passwords, keys and tokens in what people read: logs, screens, errors and reports.

One rule in three forms: `shown_url` for settings that are URLs, `without_secrets` for data with
named fields, and `hidden` for free text. Better too much hidden than too little.

An exception may carry a message of any length, and an attacker may have written it. Each pattern
consumes what it has looked at, or gives up after a fixed number of characters: the search takes
time in proportion to the text. Of a very long text only both ends are searched, and shown.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from headway.core.errors import ConfigurationError

HIDDEN = "***"

# ---- names of secrets

_WORDS = (
    "passwor[dt]|passwd|passphrase|pwd|secret|token|credential|authorization|"
    "(?:api|access|account|private)[ _-]?key|sess(?:ion)?[ _-]?id"
)
_WHOLE = ("pw", "otp", "cvv", "cvc")
"""Names that are part of many words, so they have to stand alone."""
_SHORT = "pass|auth|bearer|jwt|pin"
"""Words that other texts are full of: taken for a name only where nothing else can be meant."""
_COUNTED = re.compile(r"tokens(?:_|$)|count$", re.IGNORECASE)
"""Names of numbers that are no secrets, though they are of such."""
_OWN_NAME = re.compile(r"[\w .-]{2,100}")

# ---- values

_SCHEMES = "bearer|basic|digest|token|api-?key|negotiate|ntlm|oauth|jwt|hawk|aws4-hmac-sha256"
_QUOTE = r"\\{0,3}[\"']?"
"""A text in a text has its quotes escaped."""
_VALUE = (
    r"(?:b(?=[\"']))?\\{0,3}[\"'\[({]?)"
    r"(?:(?<=[^\\]\")(?:[^\"\\]++|\\.)++|(?<=\")[^\"]++|"
    r"(?<=[^\\]')(?:[^'\\]++|\\.)++|(?<=')[^']++|"
    rf"(?<=[\[({{])[^\])}}]++|(?:(?:{_SCHEMES})\s{{1,3}})?[^\s\"',;&)}}\]]++)"
)
"""The end of `before`, and all that is in the quotes or brackets opened there, or one word."""
_EQUALS = rf"(?: provided)?{_QUOTE}\s{{0,3}}(?:[=:]>?)\s{{0,3}}"
_SAYS = r"\s{1,3}(?:(?:was|is)\s{1,3})?(?=b?\\{0,3}[\"'])|\s(?:was|is)\s(?=[^\s\d]{0,40}\d)"
"""As in: the password was 'X'. A word without quotes and digits may be "wrong"."""

# ---- where no name is needed

_LOGIN = re.compile(
    r"(?P<before>://(?:[^\s/:@]{0,100}+:)?+)(?:(?:[^\s\"'@:]++|:(?!//))*+@)++", re.DOTALL
)
_ODD_LOGIN = re.compile(
    r"(?P<before>://[^\s/:@\"'<>]{1,100}+:)(?!\d{1,5}(?:[^\w@]|$))(?:[^@\n:]|:(?!//)){1,100}+@"
)
"""With a space or a quote in the password; a port, and an address after it, is something else."""
_TORN_LOGIN = re.compile(
    r"(?P<before>(?<![\w.+-])(?!(?:mailto|from|to|cc):)[\w.+-]{1,64}+:(?!//))"
    r"[^\s:@\"'<>]{1,200}+@(?=[\w\[])",
    re.IGNORECASE,
)
"""`bob:PASSWORD@host`, and `amqp:/bob:PASSWORD@host`."""
_COOKIE = re.compile(
    rf"(?P<before>\bcookie{_QUOTE}\s{{0,3}}[=:]\s{{0,3}}{_QUOTE})[^\"'\r\n]++", re.IGNORECASE
)
_SIGNED = "key|sig|signature|x-amz-signature|x-goog-signature"
_IN_QUERY = re.compile(_SIGNED, re.IGNORECASE)
_QUERY = re.compile(rf"(?P<before>[?&](?:{_SIGNED})=)[^\s&\"'#<>]++", re.IGNORECASE)
_OPTION = re.compile(r"(?P<before>(?<![\w-])--(?P<name>[\w-]{1,80}+)\s{1,3}+)(?!--)\S++")
_PAIR = re.compile(r"(?P<before>\(b?[\"'](?P<name>[\w-]{1,80}+)[\"'],\s{0,3}b?[\"'])[^\"']++")
# What follows the name of a scheme is a secret, unless it is plainly a word about it.
_BEARER = re.compile(
    r"(?P<before>\bbearer\s{1,3})"
    r"(?!(?:tokens?|auth\w{0,20}|schemes?|headers?|realm|error|format|prefix|credentials?|missing|"
    r"required|invalid|expired|expected|security|should|cannot)\b)"
    r"[^\s\"',;)}\]<>\\]{6,}+",
    re.IGNORECASE,
)
_BASIC = re.compile(
    r"(?P<before>\b(?i:basic)\s{1,3})"
    r"(?!(?:[A-Z]?[a-z]{1,30}|[A-Z]{1,30}|[0-9]{1,30})(?![\w+/=]))"
    r"[A-Za-z0-9+/]{4,}+={0,2}+(?![\w.-]\w)"
)
_SHAPED = re.compile(
    r"(?P<before>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[^-]++|(?<![\w-])(?:sk-[\w-]{16,}+|"
    r"gh[pousr]_\w{20,}+|github_pat_\w{20,}+|glpat-[\w-]{16,}+|xox[abprs]-[\w-]{10,}+|"
    r"AKIA[0-9A-Z]{16}|AIza[\w-]{30,}+|eyJ[\w-]{8,}+\.[\w-]{4,}+(?:\.[\w-]*+)?+)"
)
"""Keys that are known by how they look, such as `sk-...`, and tokens that are signed JSON."""

_LOGINS = (_LOGIN, _ODD_LOGIN, _TORN_LOGIN)
_NAMES = (
    *("passwor", "passwd", "passphrase", "pwd", "secret", "token", "credential", "authorization"),
    *("key", "sess", *_WHOLE),
)
_SHAPES = (
    *("private key", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox"),
    *("akia", "aiza", "eyj"),
)

_MOST = 100_000
_BEYOND = 21_000
"""No secret is longer: where a text is cut, so much more is looked through than is shown."""
_OFTEN = 2_000
"""Up to this length texts come again and again, and are remembered."""
_DEEPEST = 20
_LONGEST_NAME = 200
_MOST_OPTIONS = 100


class _Rule:
    """What depends on the names of secrets, with those that the user added."""

    def __init__(self, own: Sequence[str]) -> None:
        words = [re.sub(r"(?:\\?[ _-])+", "[ _-]?", re.escape(name)) for name in own]
        whole = "|".join((*_WHOLE, *words))
        first = re.escape("".join({"a", "c", "o", "p", "s", "t", *(name[0] for name in own)}))
        names = rf"(?:(?:{_WORDS})[\w-]{{0,40}}+|(?<![a-z0-9])(?:{whole})(?![a-z0-9]))"
        short = rf"(?<![a-z0-9])(?:{_SHORT})(?:=|{_QUOTE}(?<=[\"'])\s{{0,3}}[=:])\s{{0,3}}"
        starts = r"(?:^|[^a-z0-9]|(?-i:(?<=[a-z])(?=[A-Z])))"
        self._name = re.compile(
            rf"(?:{_WORDS}|\bcookie)[\w-]{{0,40}}$|{starts}(?:{_SHORT}|cookies?)$|"
            rf"{starts}(?:{whole})(?:$|[^a-z0-9]|(?-i:(?=[A-Z])))",
            re.IGNORECASE,
        )
        named = rf"(?P<before>(?=[{first}]){names}(?:{_EQUALS}|{_SAYS}){_VALUE}"
        needed = (*_NAMES, *(re.split("[ _-]", name)[0].lower() for name in own))
        self._search: tuple[tuple[Sequence[str], re.Pattern[str]], ...] = (
            (("://",), _LOGIN),
            (("://",), _ODD_LOGIN),
            (("@",), _TORN_LOGIN),
            (("--",), _OPTION),
            (("('", '("', "(b'", '(b"'), _PAIR),
            (needed, re.compile(named, re.IGNORECASE)),
            (_SHORT.split("|"), re.compile(rf"(?P<before>{short}{_VALUE}", re.IGNORECASE)),
            (("cookie",), _COOKIE),
            (("key=", "sig=", "signature="), _QUERY),
            (("bearer",), _BEARER),
            (("basic",), _BASIC),
            (_SHAPES, _SHAPED),
        )
        """Patterns behind the texts without which they find nothing: these are found quickly."""
        self.remembered = lru_cache(maxsize=256)(self.searched)

    def searched(self, text: str) -> str:
        lower = text.lower()
        for needed, pattern in self._search:
            if any(each in lower for each in needed):
                text = pattern.sub(self._without, text)
        return text

    def _without(self, found: re.Match[str]) -> str:
        parts = found.groupdict()
        if "name" in parts and not self.is_name(parts["name"]):
            return found[0]
        tail = "@" if found[0].endswith("@") and found.re in _LOGINS else ""
        return f"{parts['before'] or ''}{HIDDEN}{tail}"

    def is_name(self, name: str) -> bool:
        return self._name.search(name[-_LONGEST_NAME:]) is not None


_own: tuple[str, ...] = ()
"""Names that were added in this process."""
_rule = lru_cache(maxsize=1)(_Rule)  # made at the first use: retrying a function may need none


def hide_fields(*names: str) -> None:
    """Treat further names as names of secrets, in this process: `hide_fields("iban", "tax id")`.

    A field is hidden if one of them is a word in its name (`customerIban`, `iban_old`), in data and
    in free text (`iban=...`). Case, and whether words are joined by `_`, `-` or a space, does not
    matter. HEADWAY_SECRET_FIELDS names them for every process.
    """
    global _own  # noqa: PLW0603 (one rule for the process: loggers and errors have no other way)
    for name in names:
        if not _OWN_NAME.fullmatch(name):
            raise ConfigurationError(
                f"Invalid name of a secret field {name!r}: use 2 to 100 letters, digits, spaces, "
                "dashes or underscores."
            )
    _own = tuple(dict.fromkeys((*_own, *names)))


def hidden(text: str) -> str:
    """Give a text with the passwords, keys and tokens in it hidden.

    >>> hidden("cannot reach amqp://user:s3cret@broker:5672, password='x'")
    "cannot reach amqp://user:***@broker:5672, password='***'"
    >>> hidden("refused: Basic dXNlcjpzM2NyZXQ=")
    'refused: Basic ***'
    """
    if len(text) <= _OFTEN:
        return _rule(_own).remembered(text)
    if len(text) <= _MOST:
        return _rule(_own).searched(text)
    # Cut last: half a password is not known for one.
    first = _rule(_own).searched(text[: _MOST // 2 + _BEYOND])[:-_BEYOND]
    last = _rule(_own).searched(text[-_MOST // 2 - _BEYOND :])[_BEYOND:]
    return f"{first} ... {last}"


def without_secrets(value: Any) -> Any:
    """Hide secrets in what JSON can hold, by what they are named and by what they look like."""
    return _plain(value, "", 0)


def bytes_without_secrets(body: bytes) -> bytes:
    """Hide secrets in a message: in its fields where it is JSON, else as in free text.

    >>> bytes_without_secrets(b'{"token": "s3cret"}')
    b'{"token":"***"}'
    """
    import msgspec  # noqa: PLC0415 (retrying a function needs none of it)

    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        text = body.decode(errors="backslashreplace")
        safe = hidden(text)
        return body if safe == text else safe.encode(errors="backslashreplace")
    plain = without_secrets(value)
    return body if plain == value else msgspec.json.encode(plain)


def _plain(value: Any, name: str, depth: int) -> Any:
    if depth > _DEEPEST:
        return "..."
    if name and _is_secret(name, value):
        return HIDDEN
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
    return _rule(_own).is_name(name)


_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,30})://"
    r"(?:(?P<user>[\w.~!$&'()*+,;=%-]*)(?P<password>:[\w.~!$&'()*+,;=:%-]*)?@)?"
    r"(?P<hosts>(?:[\w.~%-]+|\[[0-9a-f:.]+\])?(?::[0-9]{1,5})?"
    r"(?:,(?:[\w.~%-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?)*)"
    r"(?P<path>/[\w.~!$&'()*+,;=:%/-]*)?(?:\?(?P<query>[\w.~!$&'()*+,;=:%/?-]*))?",
    re.IGNORECASE | re.ASCII,
)
"""A URL as RFC 3986 has it, with several hosts as databases have them. No @ but one for the login:
where there are more, any part may be the password."""
_FILE = re.compile(r"(?P<before>sqlite:///[^?]*)(?:\?(?P<query>.*))?", re.IGNORECASE | re.DOTALL)
_TOKENS = re.compile("https?|rediss?", re.IGNORECASE)
"""Schemes under which a user without a password is a token, or a password without a user."""
_SCHEME = re.compile(
    r"[a-z][a-z0-9+.-]{0,30}(?=://)|"
    r"(?:amqps?|https?|rediss?|mongodb(?:\+srv)?|postgres(?:ql)?|sqlite|kafka|qdrant)(?=:)",
    re.IGNORECASE,
)


def shown_url(url: str) -> str:
    """Give a setting that is a URL as it may be shown: user and hosts, and no password.

    Of one that is not well formed only the scheme is shown: any part of it may be the password.

    >>> shown_url("amqp://bob:s3cret@broker:5672/shop")
    'amqp://bob:***@broker:5672/shop'
    >>> shown_url("amqp:/bob:s3cret@broker"), shown_url("bob:s3cret@broker")
    ('amqp://***', '***')
    """
    if found := _FILE.fullmatch(url):  # a file has no login, and its name may hold anything
        return f"{found['before']}{_shown_query(found['query'])}"
    parts = _URL.fullmatch(url)
    if parts is None:
        scheme = _SCHEME.match(url)
        return f"{scheme[0]}://{HIDDEN}" if scheme else url and HIDDEN
    login = ""
    if parts["password"] is not None:
        login = f"{parts['user']}:{HIDDEN}@"
    elif parts["user"] is not None:
        is_user = not _TOKENS.fullmatch(parts["scheme"]) and "%3a" not in parts["user"].lower()
        login = f"{parts['user'] if is_user else HIDDEN}@"
    query = _shown_query(parts["query"])
    return f"{parts['scheme']}://{login}{parts['hosts']}{parts['path'] or ''}{query}"


def _shown_query(query: str | None) -> str:
    from urllib.parse import parse_qsl  # noqa: PLC0415 (as above)

    if not query:
        return ""
    if query.count("&") > _MOST_OPTIONS:
        return f"?{HIDDEN}"
    shown = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        is_secret = _IN_QUERY.fullmatch(name) or _is_secret(name, value)
        shown.append(f"{name}={HIDDEN if is_secret else hidden(value)}")
    return f"?{'&'.join(shown)}"
