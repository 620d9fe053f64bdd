"""Engines are named by URLs. Here they are read, and what is wrong with one is said."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from headway.core.errors import ConfigurationError
from headway.core.secrets import hidden, shown_url

DEFAULT_URL = "sqlite:///headway.db"
SYNCHRONOUS = ("full", "normal", "off")
_PORTS = {"amqp": 5672, "amqps": 5671}
_MONGODB = ("mongodb", "mongodb+srv")
_POSTGRESQL = ("postgresql", "postgres")
_REDIS = ("redis", "rediss")
_MONGODB_PORT = 27_017
_NOT_IN_NAMES = '/\\. "$*<>:|?'
"""What no name of a MongoDB database holds."""
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


@dataclass(frozen=True, slots=True)
class MongoUrl:
    """A database of MongoDB; its driver reads the rest of the URL."""

    database: str
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """A database of PostgreSQL; its driver reads the rest of the URL."""

    database: str
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A numbered database of Redis, or a cluster; its driver reads the rest of the URL."""

    database: int
    url: str = field(repr=False)
    cluster: bool = False


StoreUrl = SqliteUrl | MongoUrl | PostgresUrl
SequencesUrl = SqliteUrl | RedisUrl


def read_engine_url(name: str, url: str) -> SqliteUrl | AmqpUrl:
    """Read the URL of a bus, or refuse it under the name of its setting."""
    parts = _split(name, url)
    if parts.scheme in _PORTS:
        return _read_amqp(name, url, parts)
    if parts.scheme in (*_MONGODB, *_POSTGRESQL):
        cure = f"set HEADWAY_STORE to it, and for the bus {_BROKER}"
        raise _refused(name, url, "this is a store, and no bus", cure)
    return _read_sqlite(name, url, parts, f"{_FILE}; {_BROKER}")


def read_store_url(name: str, url: str) -> StoreUrl:
    """Read the URL of a store, or refuse it under the name of its setting."""
    parts = _split(name, url)
    if parts.scheme in _PORTS:
        raise _refused(name, url, "a broker keeps no records", f"{_FILE}; {_DATABASES}")
    if parts.scheme in _MONGODB:
        return MongoUrl(_read_database(name, url, parts, _NOT_IN_NAMES), url)
    if parts.scheme in _POSTGRESQL:
        return PostgresUrl(_read_database(name, url, parts), url)
    return _read_sqlite(name, url, parts, f"{_FILE}; {_DATABASES}")


def read_sequences_url(name: str, url: str) -> SequencesUrl:
    """Read the URL of sequences, or refuse it under the name of its setting."""
    parts = _split(name, url)
    if parts.scheme not in _REDIS:
        return _read_sqlite(name, url, parts, f"{_FILE}; {_SEQUENCES}")
    database = parts.path.strip("/") or "0"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    cluster = options.pop("cluster", "false").lower()
    wrong = {
        _UNQUOTED: "@" in f"{parts.path}{parts.query}" or "#" in url,
        "it names no host": not parts.hostname,
        f"its port is no number from 1 to {_HIGHEST_PORT}": not _has_port(parts),
        f"{database!r} is no number of a database": not database.isdecimal(),
        f"cluster={cluster!r} is neither true nor false": cluster not in {"true", "false"},
        "a cluster has no numbered databases": cluster == "true" and database != "0",
    }
    why = next((why for why, is_so in wrong.items() if is_so), None)
    if why is not None:
        raise _refused(name, url, why, _SEQUENCES.removeprefix("or "))
    for_driver = urlunsplit(parts._replace(query=urlencode(options)))
    return RedisUrl(int(database), for_driver, cluster == "true")


def read_broker(settings: Mapping[str, str]) -> AmqpUrl | None:
    """Read the variables RABBITMQ_*; None: RABBITMQ_HOST is not there, so they name no broker."""
    found = _read_host(settings, "RABBITMQ", _PORTS["amqp"], "HEADWAY_BUS", "amqp")
    if found is None:
        return None
    return AmqpUrl(
        *found,
        settings.get("RABBITMQ_VHOST") or "/",
        settings.get("RABBITMQ_USERNAME") or settings.get("RABBITMQ_USER") or "guest",
        settings.get("RABBITMQ_PASSWORD") or "guest",
    )


def read_mongodb(settings: Mapping[str, str]) -> MongoUrl | None:
    """Read the variables MONGODB_*; None: MONGODB_HOST is not there, so they name no store."""
    found = _read_host(settings, "MONGODB", _MONGODB_PORT, "HEADWAY_STORE", "mongodb")
    if found is None:
        return None
    database, user, password = (
        settings.get(f"MONGODB_{name}") or "" for name in ("DATABASE", "USERNAME", "PASSWORD")
    )
    if not database or any(sign in database for sign in _NOT_IN_NAMES):
        raise ConfigurationError(
            f"MONGODB_DATABASE={hidden(database)!r} is not accepted: with MONGODB_HOST it names "
            "the database, without any of " + " ".join(_NOT_IN_NAMES.replace(" ", ""))
        )
    if bool(user) != bool(password):
        there, missing = ("USERNAME", "PASSWORD") if user else ("PASSWORD", "USERNAME")
        raise ConfigurationError(
            f"MONGODB_{missing} is not set, and MONGODB_{there} is: set both, or none"
        )
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    where = "?authSource=admin" if user else ""
    return MongoUrl(database, f"mongodb://{login}{found[0]}:{found[1]}/{quote(database)}{where}")


def _read_host(
    settings: Mapping[str, str], prefix: str, usual_port: int, whole: str, scheme: str
) -> tuple[str, int] | None:
    host = settings.get(f"{prefix}_HOST", "").strip()
    if not host:
        return None
    if any(sign in host for sign in "/@: \t"):
        raise ConfigurationError(
            f"{prefix}_HOST={shown_url(host)!r} is not accepted: it is no name of a host; a whole "
            f"URL goes into {whole}"
        )
    port = settings.get(f"{prefix}_PORT") or str(usual_port)
    if not _is_port(port):
        raise ConfigurationError(
            f"{prefix}_PORT={hidden(port)!r} is not accepted: use a number from 1 to "
            f"{_HIGHEST_PORT}; where Kubernetes sets it by itself, use {whole}={scheme}://..."
        )
    return host, int(port)


def _split(name: str, url: str) -> SplitResult:
    if any(sign < " " for sign in url):  # urlsplit would leave them out
        raise _refused(name, url, "it holds a line break, or another control character", _FILE)
    try:
        return urlsplit(url)
    except ValueError:
        raise _refused(name, url, "it is not a URL", _FILE) from None


def _read_sqlite(name: str, url: str, parts: SplitResult, others: str) -> SqliteUrl:
    if parts.scheme != "sqlite":
        raise _no_sqlite(name, url, parts, others)
    if parts.netloc:
        raise _refused(name, url, "a file has no host, so three slashes are needed", _FILE)
    if not url.partition(":")[2].startswith("///"):
        raise _refused(name, url, "three slashes are needed before the name of a file", _FILE)
    if "#" in url or url.endswith("?"):
        raise _refused(name, url, "in the name of a file a # is written as %23, a ? as %3F", _FILE)
    try:
        path = unquote(parts.path.removeprefix("/"), errors="strict")
    except UnicodeDecodeError:
        raise _refused(name, url, "what is written with % is not UTF-8", _FILE) from None
    if not path or path.endswith("/") or "\0" in path or path.rpartition("/")[2] in {".", ".."}:
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
        why = (
            f"{next(iter(options))!r} is no option (there is: synchronous); in the name of a file "
            "a ? is written as %3F"
        )
        raise _refused(name, url, why, _FILE)
    return SqliteUrl(path, synchronous)


def _no_sqlite(name: str, url: str, parts: SplitResult, others: str) -> ConfigurationError:
    if "://" in url:
        return _refused(name, url, f"unsupported scheme {parts.scheme!r}", others)
    if url.endswith((".db", ".sqlite", ".sqlite3")) and not set("@:?#") & set(url):
        # A file. In all else, what looks like a scheme may be a user, or a password.
        return ConfigurationError(
            f"Invalid {name} {url!r}: it is not a URL. Use sqlite:///{quote(url)}."
        )
    return _refused(name, url, "it is not a URL", others)


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


def _read_database(name: str, url: str, parts: SplitResult, refused: str = "/") -> str:
    """Give the name of the database; hosts, login and options are the driver's to read."""
    database = unquote(parts.path.removeprefix("/"))
    hosts = parts.netloc.rpartition("@")[2]
    ports = [host.rpartition(":")[2] for host in hosts.split(",") if ":" in host.rpartition("]")[2]]
    wrong = {
        _UNQUOTED: "@" in f"{parts.path}{parts.query}{parts.fragment}" or parts.fragment,
        "it names no host": not hosts and "host=" not in parts.query,
        f"its port is no number from 1 to {_HIGHEST_PORT}": not all(map(_is_port, ports)),
        "it names no database": not database,
        f"{database!r} is no name of a database": any(sign in database for sign in refused),
    }
    why = next((why for why, is_so in wrong.items() if is_so), None)
    if why is not None:
        raise _refused(name, url, why, f"use {parts.scheme}://USER:PASSWORD@HOST:PORT/DATABASE")
    return database


def _wrong_with_broker(parts: SplitResult) -> str | None:
    option = (parts.query or parts.fragment).partition("=")[0]
    wrong = {
        _UNQUOTED: "@" in f"{parts.path}{parts.query}{parts.fragment}",
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


def _is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) <= _HIGHEST_PORT


_UNQUOTED = "a / in a password is written as %2F, a # as %23 and a ? as %3F"
_FILE = (
    f"use sqlite:///FILE, such as {DEFAULT_URL}, or sqlite:////FOLDER/FILE for a path from the root"
)
_BROKER = "use amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps:// for TLS"
_SEQUENCES = (
    "or use redis://USER:PASSWORD@HOST:PORT/NUMBER, or rediss:// for TLS, with ?cluster=true for a "
    "cluster"
)
_DATABASES = "or mongodb:// or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


def _refused(name: str, url: str, wrong: str, cure: str) -> ConfigurationError:
    return ConfigurationError(
        f"Invalid {name} {shown_url(url)!r}: {wrong}. {cure[0].upper()}{cure[1:]}."
    )
