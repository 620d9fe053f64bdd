"""Engines are named by URLs. Here they are read, and what is wrong with one is said."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from headway.core.errors import ConfigurationError
from headway.core.secrets import hidden

DEFAULT_URL = "sqlite:///headway.db"
SYNCHRONOUS = ("full", "normal", "off")


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """The file of an embedded engine, and how surely it writes."""

    path: str
    synchronous: str = "full"
    """`full` survives the loss of power; `normal` may lose the last commits then, is faster, and
    survives the death of any process all the same."""


def read_engine_url(name: str, url: str) -> SqliteUrl:
    """Read the URL of an engine, or refuse it under the name of its setting."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _refused(name, url, "it is no URL") from None
    if parts.scheme != "sqlite":
        raise _refused(name, url, f"{parts.scheme or 'nothing'!r} is no engine that can be used")
    if parts.netloc:
        raise _refused(name, url, "a file has no host, so three slashes are needed")
    path = unquote(parts.path.removeprefix("/"))
    if not path or path.endswith("/"):
        raise _refused(name, url, "it names no file")
    if ":memory:" in path:
        raise _refused(name, url, "memory is not kept; headway.testing.trial.Trial is for tests")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = options.pop("synchronous", "full").lower()
    if synchronous not in SYNCHRONOUS:
        raise _refused(
            name, url, f"synchronous={synchronous!r} is none of {', '.join(SYNCHRONOUS)}"
        )
    if options:
        raise _refused(name, url, f"{next(iter(options))!r} is no option (there is: synchronous)")
    return SqliteUrl(path, synchronous)


def _refused(name: str, url: str, wrong: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name}={hidden(url)!r} is not accepted: {wrong}; use sqlite:///FILE, such as "
        f"{DEFAULT_URL}, or sqlite:////FOLDER/FILE for a path from the root"
    )
