"""The environment, read here and nowhere else."""

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.core.engine_url import (
    DEFAULT_URL,
    AmqpUrl,
    SequencesUrl,
    SqliteUrl,
    StoreUrl,
    read_broker,
    read_engine_url,
    read_mongodb,
    read_sequences_url,
    read_store_url,
)
from headway.core.errors import ConfigurationError
from headway.core.parsing import meant_by
from headway.core.policy import RETRY_PREFIXES, RETRY_SETTINGS, RetryConfig
from headway.core.secrets import hide_fields, shown_url
from headway.core.suggestion import nearest, suggestion
from headway.core.sweep_settings import SweepSettings

SETTINGS_FILE = "HEADWAY_SETTINGS"
_OPTIONS = "_HEADWAY_OPTIONS"
SHARED_COUNTERS = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus-client keeps counters that several processes add up; its own setting."""


def environment(*, with_file: bool = True) -> Mapping[str, str]:
    """Give the process's environment as it is now.

    If HEADWAY_SETTINGS names a file, what it says goes before the environment. A running process
    keeps its environment, but it reads the file again when it is told to reload. Options of the
    command that started this process go before both.
    """
    settings = dict(os.environ)
    options = json.loads(settings.pop(_OPTIONS, "{}"))
    name = settings.get(SETTINGS_FILE) if with_file else None
    read = {each: value for _, each, value in _lines(Path(name))} if name else {}
    return {**settings, **read, **options}


def hand_down(options: Mapping[str, str]) -> None:
    """Have this process and those that it starts use these settings, whatever the file says.

    They go by the environment: a URL may hold a password, and a command line is public.
    """
    os.environ[_OPTIONS] = json.dumps({**json.loads(os.environ.get(_OPTIONS, "{}")), **options})


def shown_file(name: str) -> str:
    """Give the name of a file as it may be shown: a URL in the wrong variable is no file."""
    is_url = "@" in name or ":/" in name
    return shown_url(name) if is_url and not Path(name).exists() else name


def _lines(path: Path) -> Sequence[tuple[int, str, str]]:
    """Read a file of settings: the number, the name and the value of each line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"{SETTINGS_FILE}={shown_file(str(path))!r} cannot be read ({why}): "
            "name a file of NAME=VALUE lines"
        ) from None
    settings: list[tuple[int, str, str]] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found = _SETTING.fullmatch(text)
        if found is None:  # the line is not shown: it may hold a password
            raise ConfigurationError(
                f"Invalid line {number} of {SETTINGS_FILE} {str(path)!r}. Use NAME=VALUE, or "
                "NAME='VALUE' if the value begins with a quote or has ' #' in it, which begins a "
                "comment."
            )
        quoted, plain = found["quoted"], found["plain"]
        value = plain.strip() if quoted is None else quoted[1:-1]
        settings.append((number, found["name"], value))
    return settings


_SETTING = re.compile(
    r"(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*="
    r"(?:\s*(?P<quoted>\"[^\"]*\"|'[^']*')|(?!\s*[\"'])(?P<plain>(?:(?!\s#).)*))(?:\s+#.*|\s*)",
    re.ASCII,
)
"""NAME=VALUE as shells and Docker write it, with a comment behind it or none."""


def retry_config() -> RetryConfig:
    """Read RETRY_* and EVENT_RETRY_*; a value that cannot be used is refused by name."""
    settings = environment()
    _refuse_misspelt(settings)
    read_secret_fields(settings)
    return RetryConfig.from_mapping(settings)


def read_secret_fields(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Read HEADWAY_SECRET_FIELDS, names of fields between commas: logs and screens hide them."""
    given = settings.get(SECRET_FIELDS, "").split(",")
    names = tuple(name.strip() for name in given if name.strip())
    try:
        hide_fields(*names)
    except ConfigurationError as error:
        raise ConfigurationError(f"{SECRET_FIELDS} cannot be used. {error}") from None
    return names


def sweep_settings() -> SweepSettings:
    """Read RETRY_JOB_*, and where figures are pushed; what cannot be used is refused by name."""
    return SweepSettings.from_mapping(environment())


GIVEN_BUS = "_HEADWAY_BUS"
"""What was typed as --bus, from one process of Headway to the next: the URL may hold a password,
and everybody can see a command line."""


def given_bus() -> str | None:
    """Give the URL that the process which started this one was given."""
    return os.environ.get(GIVEN_BUS) or None


def named_services(settings: Mapping[str, str] | None = None) -> list[str]:
    """Give the services that HEADWAY_SERVICES names, each as MODULE:SERVICE."""
    settings = environment() if settings is None else settings
    _refuse_misspelt(settings)
    given = settings.get(SERVICES, "")
    if "," in given:
        raise ConfigurationError(
            f"{SERVICES}={given!r} is not accepted: put spaces between the services, and no commas"
        )
    return given.split()


def ui_token(settings: Mapping[str, str] | None = None) -> str | None:
    """Give HEADWAY_UI_TOKEN, if it is set; refuse one that is easy to guess, or fits no header."""
    token = (environment() if settings is None else settings).get(UI_TOKEN, "").strip()
    if token and (len(token) < _SHORTEST_TOKEN or not (token.isascii() and token.isprintable())):
        raise ConfigurationError(
            f"Invalid {UI_TOKEN}. Use at least {_SHORTEST_TOKEN} visible ASCII characters. "
            "Make one with: openssl rand -hex 16"
        )
    return token or None


def ui_hosts(settings: Mapping[str, str] | None = None) -> list[str]:
    """Give the names in HEADWAY_UI_HOSTS."""
    given = (environment() if settings is None else settings).get(UI_HOSTS, "")
    return [name for each in given.split(",") if (name := each.strip())]


def log_level(settings: Mapping[str, str] | None = None) -> str:
    """Give HEADWAY_LOG_LEVEL, or the level that --log-level named."""
    given = (environment() if settings is None else settings).get(LOG_LEVEL, "").strip() or "INFO"
    if given.upper() not in LOG_LEVELS:
        raise ConfigurationError(
            f"Invalid {LOG_LEVEL} {given!r}: unknown level. Use {', '.join(LOG_LEVELS[:-1])} or "
            f"{LOG_LEVELS[-1]}."
        )
    return given.upper()


SERVICES = "HEADWAY_SERVICES"
LOG_LEVEL = "HEADWAY_LOG_LEVEL"
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
SECRET_FIELDS = "HEADWAY_SECRET_FIELDS"  # noqa: S105 (the name of a setting)
SEQUENCES = "HEADWAY_SEQUENCES"
ERRORS = "HEADWAY_ERRORS"
"""The file in which `headway ui` keeps reports of errors."""
DEFAULT_ERRORS = "headway-errors.db"
UI_TOKEN = "HEADWAY_UI_TOKEN"  # noqa: S105 (a name)
"""What `headway ui` asks clients for, and services send with their reports."""
_SHORTEST_TOKEN = 16
UI_HOSTS = "HEADWAY_UI_HOSTS"
"""Names that `headway ui` is reached by, besides those of the machine."""
_OWN = (
    "HEADWAY_BUS",
    "HEADWAY_STORE",
    "HEADWAY_EXCHANGE",
    SEQUENCES,
    SERVICES,
    SETTINGS_FILE,
    ERRORS,
    UI_TOKEN,
    UI_HOSTS,
    SECRET_FIELDS,
    LOG_LEVEL,
)
DEFAULT_EXCHANGE = "headway.events"


_BROKERS = tuple(
    f"RABBITMQ_{each}"
    for each in ("HOST", "PORT", "USERNAME", "USER", "PASSWORD", "VHOST", "EXCHANGE")
)
_SET_BY_KUBERNETES = re.compile(r"HEADWAY(_.+)?_(SERVICE_(HOST|PORT.*)|PORT(_\d+_.*)?)")
"""Where a service there is named headway, or headway-something."""
_LOG = logging.getLogger("headway")
_NAMED: set[str] = set()
"""Names that this process has warned of."""
_RATHER = 0.75
_OTHER_WORDS = {
    "MAX_RETRIES": "MAX_ATTEMPTS",
    "RETRIES": "MAX_ATTEMPTS",
    "ATTEMPTS": "MAX_ATTEMPTS",
    "COUNT": "MAX_ATTEMPTS",
    "DELAY_MS": "BASE_DELAY_MS",
    "INITIAL_DELAY_MS": "BASE_DELAY_MS",
    "BACKOFF": "BACKOFF_FACTOR",
    "MULTIPLIER": "BACKOFF_FACTOR",
}
"""What other libraries call our settings."""
_NEARLY = 0.9
"""Of names that others may use too, only the nearest are taken for misspelt."""


def _refuse_misspelt(settings: Mapping[str, str]) -> None:
    for name in settings:
        cure = _misspelt(name)
        if cure is not None:
            raise ConfigurationError(f"{name}{_line_of(name, settings)} is no setting: {cure}")
        if name not in _NAMED and (meant := _perhaps_meant(name, settings)) is not None:
            _NAMED.add(name)
            _LOG.warning(
                "%s%s is no setting of Headway and has no effect. Did you mean %s? If it is "
                "another program's, ignore this.",
                name,
                _line_of(name, settings),
                meant,
            )


def _perhaps_meant(name: str, settings: Mapping[str, str]) -> str | None:
    """Give the setting that a name may be meant for, where another program may use that name."""
    if name in {"RABBITMQ_URL", "AMQP_URL"}:
        is_named = settings.get("HEADWAY_BUS") or settings.get("RABBITMQ_HOST")
        return None if is_named else "HEADWAY_BUS"
    known = [prefix + each.name for prefix in RETRY_PREFIXES for each in RETRY_SETTINGS]
    if name in known or name.startswith("RETRY_JOB_") or not name.startswith(RETRY_PREFIXES):
        return None
    prefix = next(each for each in RETRY_PREFIXES if name.startswith(each))
    own = name.removeprefix(prefix)
    if own in _OTHER_WORDS:
        return prefix + _OTHER_WORDS[own]
    near = nearest(own, [each.name for each in RETRY_SETTINGS], cutoff=_RATHER)
    return None if near is None else prefix + near


def _misspelt(name: str) -> str | None:
    """Give the cure for a name that is meant for Headway and is none of its settings."""
    if name in _OWN or _SET_BY_KUBERNETES.fullmatch(name):
        return None
    if name.startswith("HEADWAY_"):
        own = [each.removeprefix("HEADWAY_") for each in _OWN]
        return suggestion(name.removeprefix("HEADWAY_"), own, before="HEADWAY_")
    if name.upper().startswith("HEADWAY"):
        meant = nearest(name.upper(), _OWN, cutoff=_NEARLY)
    else:
        meant = meant_by(name, RETRY_SETTINGS, RETRY_PREFIXES)
    return None if meant is None else f"did you mean {meant}?"


def _line_of(name: str, settings: Mapping[str, str]) -> str:
    """Say where the file of settings sets a name, if it does."""
    file = settings.get(SETTINGS_FILE)
    try:
        lines = [line for line, each, _ in _lines(Path(file)) if each == name] if file else []
    except ConfigurationError:  # that was refused by itself, and nothing of it is in force
        lines = []
    return f" (line {lines[-1]} of {SETTINGS_FILE} {file!r})" if lines else ""


def _refuse_empty(settings: Mapping[str, str]) -> None:
    """Refuse the name of a place that is set to nothing: the default would take its place."""
    for name in ("HEADWAY_BUS", "HEADWAY_STORE", SEQUENCES):
        if name in settings and not settings[name].strip():
            raise ConfigurationError(
                f"Invalid {name} {settings[name]!r}: it is empty. Is a variable unset? Set {name} "
                "to a URL, or leave it out."
            )


def _refuse_misspelt_broker(settings: Mapping[str, str]) -> None:
    for name in settings:
        if name.startswith("RABBITMQ_") and name not in _BROKERS:
            near = nearest(name, _BROKERS, cutoff=_NEARLY)
            if near is not None:
                raise ConfigurationError(f"{name} is no setting: did you mean {near}?")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Which engine is meant: a file, or a broker, with a store beside it or none."""

    name: str
    """The setting that named the bus."""
    bus: SqliteUrl | AmqpUrl
    url: str
    """As it was given, or as RABBITMQ_* have it: with the password."""
    store: StoreUrl | None = None
    """Beside a broker. None: there is none, or the bus is a store itself."""
    store_url: str = ""
    """As it was given, or as MONGODB_* have it: with the password."""
    store_name: str = "HEADWAY_STORE"
    """The setting that named the store."""
    exchange: str = DEFAULT_EXCHANGE


def engine_settings(
    url: str | None = None, settings: Mapping[str, str] | None = None
) -> EngineSettings:
    """Read which engine is meant; `url` goes before the environment, for the bus."""
    if url is not None and not url.strip():
        raise ConfigurationError(
            "Invalid --bus '': it is empty. Is a variable unset? Name an engine, or leave --bus "
            "out to use HEADWAY_BUS."
        )
    settings = environment() if settings is None else settings
    _refuse_misspelt(settings)
    _refuse_empty(settings)
    read_secret_fields(settings)
    broker = None
    if not url and not settings.get("HEADWAY_BUS"):
        _refuse_misspelt_broker(settings)
        broker = read_broker(settings)
    if broker is not None:
        return _beside_store(settings, "RABBITMQ_HOST", broker, str(broker))
    given = url or settings.get("HEADWAY_BUS") or DEFAULT_URL
    named = "--bus" if url else "HEADWAY_BUS"
    bus = read_engine_url(named, given)
    if isinstance(bus, AmqpUrl):
        return _beside_store(settings, named, bus, given)
    if not url:
        _refuse_beside_file(settings, given)
    return EngineSettings(name=named, bus=bus, url=given)


def _beside_store(settings: Mapping[str, str], name: str, bus: AmqpUrl, url: str) -> EngineSettings:
    given = settings.get("HEADWAY_STORE")
    mongodb = None if given else read_mongodb(settings)
    exchange = settings.get("HEADWAY_EXCHANGE") or settings.get("RABBITMQ_EXCHANGE")
    return EngineSettings(
        name=name,
        bus=bus,
        url=url,
        store=read_store_url("HEADWAY_STORE", given) if given else mongodb,
        store_url=given or (mongodb.url if mongodb else ""),
        store_name="MONGODB_HOST" if mongodb else "HEADWAY_STORE",
        exchange=exchange or DEFAULT_EXCHANGE,
    )


def _refuse_beside_file(settings: Mapping[str, str], bus: str) -> None:
    store, exchange = settings.get("HEADWAY_STORE"), settings.get("HEADWAY_EXCHANGE")
    if store and not settings.get("HEADWAY_BUS") and store != bus:
        raise ConfigurationError(
            f"HEADWAY_STORE={shown_url(store)!r} is not accepted alone: without HEADWAY_BUS the "
            f"bus is {DEFAULT_URL}, which is its own store; set HEADWAY_BUS too, to the same file "
            "or to amqp://..."
        )
    if store and store != bus:
        raise ConfigurationError(
            f"HEADWAY_STORE={shown_url(store)!r} names another engine than HEADWAY_BUS: a file is "
            "bus and store in one, so set HEADWAY_BUS only; a store of its own is for amqp://..."
        )
    if exchange:
        raise ConfigurationError(
            f"HEADWAY_EXCHANGE={exchange!r} is not accepted with {shown_url(bus)!r}: only a broker "
            "has exchanges; set HEADWAY_BUS=amqp://..., or leave it out"
        )


def shown_engine(engine: EngineSettings) -> str:
    """Name an engine without passwords; a file by its whole path, whatever folder this is."""
    bus = _shown_place(engine.bus, engine.url)
    return (
        bus
        if engine.store is None
        else f"{bus} with {_shown_place(engine.store, engine.store_url)}"
    )


def _shown_place(place: SqliteUrl | AmqpUrl | StoreUrl, url: str) -> str:
    if isinstance(place, SqliteUrl):
        return f"sqlite:///{Path(place.path).absolute()}"
    return shown_url(url)


def bus_url() -> str:
    """Give the URL of the bus that is meant if none is named."""
    return engine_settings().url


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencesSettings:
    """Where the results of each key are kept until their turn comes."""

    name: str
    """The setting that named it."""
    place: SequencesUrl
    url: str
    """As it was given: with the password."""


def sequences_settings(url: str | None = None) -> SequencesSettings:
    """Read where sequences are; `url` goes before the environment.

    If nothing is said of them, they are in the SQLite file that is the bus, or its store.
    """
    settings = environment()
    _refuse_misspelt(settings)
    _refuse_empty(settings)
    read_secret_fields(settings)
    given = url or settings.get(SEQUENCES)
    if given:
        name = "--sequences" if url else SEQUENCES
        return SequencesSettings(name=name, place=read_sequences_url(name, given), url=given)
    engine = engine_settings()
    if isinstance(engine.bus, SqliteUrl):
        return SequencesSettings(name=engine.name, place=engine.bus, url=engine.url)
    if isinstance(engine.store, SqliteUrl):
        return SequencesSettings(name=engine.store_name, place=engine.store, url=engine.store_url)
    raise ConfigurationError(
        f"{SEQUENCES} is not set, and neither {shown_url(engine.url)!r} nor a store beside it "
        f"keeps sequences: set {SEQUENCES} to sqlite:///FILE or redis://USER:PASSWORD@HOST:PORT/NUMBER"
    )
