"""Engines are named by URLs. Here they are read, and what is wrong with one is said."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from headway.core.errors import ConfigurationError
from headway.core.secrets import hidden

DEFAULT_URL = "sqlite:///headway.db"
SYNCHRONOUS = ("full", "normal", "off")
_PORTS = {"amqp": 5672, "amqps": 5671}
_HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """The file of an embedded engine, and how surely it writes."""

    path: str
    synchronous: str = "full"
    """`full` survives the loss of power; `normal` may lose the last commits then, is faster, and
    survives the death of any process all the same."""


@dataclass(frozen=True, slots=True)
class AmqpUrl:
    """A virtual host of a broker, and the login to it."""

    host: str
    port: int
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    tls: bool = False

    def __str__(self) -> str:
        """Give the URL in full, the password included, every part quoted.

        >>> str(AmqpUrl("broker", 5672, password="a/b"))
        'amqp://guest:a%2Fb@broker:5672/%2F'
        """
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "amqps" if self.tls else "amqp"
        return f"{scheme}://{login}@{host}:{self.port}/{quote(self.vhost, safe='')}"


def read_engine_url(name: str, url: str) -> SqliteUrl | AmqpUrl:
    """Read the URL of a bus, or refuse it under the name of its setting."""
    parts = _split(name, url)
    if parts.scheme in _PORTS:
        return _read_amqp(name, url, parts)
    return _read_sqlite(name, url, parts)


def read_store_url(name: str, url: str) -> SqliteUrl:
    """Read the URL of a store, or refuse it under the name of its setting."""
    parts = _split(name, url)
    if parts.scheme in _PORTS:
        raise _refused(name, url, "a broker keeps no records", _FILE)
    return _read_sqlite(name, url, parts)


def read_broker(settings: Mapping[str, str]) -> AmqpUrl | None:
    """Read the variables RABBITMQ_*; None: RABBITMQ_HOST is not there, so they name no broker."""
    host = settings.get("RABBITMQ_HOST", "").strip()
    if not host:
        return None
    if any(sign in host for sign in "/@: \t"):
        raise ConfigurationError(
            f"RABBITMQ_HOST={hidden(host)!r} is not accepted: it is no name of a host; a whole URL "
            "goes into HEADWAY_BUS"
        )
    port = settings.get("RABBITMQ_PORT") or str(_PORTS["amqp"])
    if not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
        raise ConfigurationError(
            f"RABBITMQ_PORT={hidden(port)!r} is not accepted: use a number from 1 to "
            f"{_HIGHEST_PORT}; where Kubernetes sets it by itself, use HEADWAY_BUS=amqp://..."
        )
    return AmqpUrl(
        host,
        int(port),
        settings.get("RABBITMQ_VHOST") or "/",
        settings.get("RABBITMQ_USERNAME") or settings.get("RABBITMQ_USER") or "guest",
        settings.get("RABBITMQ_PASSWORD") or "guest",
    )


def _split(name: str, url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise _refused(name, url, "it is no URL", _FILE) from None


def _read_sqlite(name: str, url: str, parts: SplitResult) -> SqliteUrl:
    if parts.scheme != "sqlite":
        why = f"{parts.scheme or 'nothing'!r} is no engine that can be used"
        raise _refused(name, url, why, f"{_FILE}; {_BROKER}")
    if parts.netloc:
        raise _refused(name, url, "a file has no host, so three slashes are needed", _FILE)
    path = unquote(parts.path.removeprefix("/"))
    if not path or path.endswith("/"):
        raise _refused(name, url, "it names no file", _FILE)
    if ":memory:" in path:
        why = "memory is not kept; headway.testing.trial.Trial is for tests"
        raise _refused(name, url, why, _FILE)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = options.pop("synchronous", "full").lower()
    if synchronous not in SYNCHRONOUS:
        why = f"synchronous={synchronous!r} is none of {', '.join(SYNCHRONOUS)}"
        raise _refused(name, url, why, _FILE)
    if options:
        why = f"{next(iter(options))!r} is no option (there is: synchronous)"
        raise _refused(name, url, why, _FILE)
    return SqliteUrl(path, synchronous)


def _read_amqp(name: str, url: str, parts: SplitResult) -> AmqpUrl:
    why = _wrong_with_broker(parts)
    if why:
        raise _refused(name, url, why, _BROKER)
    return AmqpUrl(
        parts.hostname or "",
        parts.port or _PORTS[parts.scheme],
        unquote(parts.path.removeprefix("/")) or "/",
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        tls=parts.scheme == "amqps",
    )


def _wrong_with_broker(parts: SplitResult) -> str | None:
    option = (parts.query or parts.fragment).partition("=")[0]
    wrong = {
        "a / in a password is written as %2F, a # as %23 and a ? as %3F": (
            "@" in f"{parts.path}{parts.query}{parts.fragment}"
        ),
        "it names no host": not parts.hostname,
        f"its port is no number from 1 to {_HIGHEST_PORT}": not _has_port(parts),
        "a virtual host with a slash in its name is written with %2F": "/" in parts.path[1:],
        "it names a user and no password": parts.username and not parts.password,
        f"{option!r} is no option of a broker": option,
    }
    return next((why for why, is_so in wrong.items() if is_so), None)


def _has_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


_FILE = (
    f"use sqlite:///FILE, such as {DEFAULT_URL}, or sqlite:////FOLDER/FILE for a path from the root"
)
_BROKER = "use amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps:// for TLS"


def _refused(name: str, url: str, wrong: str, cure: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={hidden(url)!r} is not accepted: {wrong}; {cure}")
