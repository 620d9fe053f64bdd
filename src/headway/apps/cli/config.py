"""`headway config`: what is in force."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from headway.adapters.reporting.http import URL as ERRORS_URL
from headway.adapters.reporting.http import checked_url
from headway.apps.cli.codes import CANNOT_GO_ON
from headway.assembly.settings import (
    DEFAULT_ERRORS,
    ERRORS,
    LOG_LEVEL,
    SECRET_FIELDS,
    SEQUENCES,
    SERVICES,
    SETTINGS_FILE,
    UI_HOSTS,
    UI_TOKEN,
    EngineSettings,
    engine_settings,
    environment,
    log_level,
    named_services,
    read_secret_fields,
    shown_file,
    ui_hosts,
    ui_token,
)
from headway.core.engine_url import AmqpUrl, SqliteUrl, read_sequences_url
from headway.core.errors import ConfigurationError
from headway.core.lifecycle import ATTEMPTS
from headway.core.policy import RETRY_SETTINGS, RetryConfig
from headway.core.secrets import hidden, shown_url
from headway.core.sweep_settings import SweepSettings, setting_of
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.ledger.settings import LedgerSettings
from headway.systems.uptime.settings import UptimeSettings

app = typer.Typer(help="Settings.", no_args_is_help=True)

INVALID = "(invalid)"


@app.callback()
def config() -> None:
    """Settings."""


@app.command()
def show(
    as_json: Annotated[bool, typer.Option("--json", help="One object, for machines.")] = False,
) -> None:
    """Show every setting with the value in force; passwords are hidden.

    Invalid settings are marked, and an error says for each what is wrong.
    """
    errors: list[str] = []
    try:
        given = dict(environment())
    except ConfigurationError as error:
        errors.append(str(error))
        given = dict(environment(with_file=False))
    shown: dict[str, str] = {}
    for section in (
        _engine,
        _metrics,
        _reports,
        _retry,
        _sweep,
        lambda settings: LedgerSettings.from_mapping(settings).in_force(),
        lambda settings: UptimeSettings.from_mapping(settings).in_force(),
        lambda settings: ConsensusSettings.from_mapping(settings).in_force(),
    ):
        # A URL may stand in the wrong setting, where nothing else would hide its password.
        found = _in_force(section, given, errors)
        shown |= {name: hidden(value) for name, value in found.items()}
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
    else:
        width = max(map(len, shown))
        for name, value in shown.items():
            typer.echo(f"{name:<{width}}  {value}")
    for message in errors:
        typer.echo(f"headway: {hidden(message)}", err=True)
    if errors:
        raise typer.Exit(CANNOT_GO_ON)


def _in_force(
    section: Callable[[Mapping[str, str]], dict[str, str]],
    settings: dict[str, str],
    errors: list[str],
) -> dict[str, str]:
    """Read one section; remove each setting that it refuses, so that the others are shown."""
    shown: dict[str, str] = {}
    refused: set[str] = set()
    while True:
        try:
            return section(settings) | _unknown(refused, settings) | shown
        except ConfigurationError as error:
            message = str(error)
            name = _cause(section, settings, message)
            if any(_place(each, message) >= 0 for each in refused) and name is not None:
                # Nothing is wrong with it: it only needs what was removed.
                value = settings.pop(name)
                shown[name] = shown_url(value) if "://" in value or "@" in value else value
                continue
            errors.append(message)
            if name is None:
                return shown
            refused.add(name)
            shown[name] = INVALID
            del settings[name]


def _unknown(refused: Collection[str], settings: Mapping[str, str]) -> dict[str, str]:
    """Name what depends on settings that were refused: no default takes their place."""
    unknown: dict[str, str] = {}
    if any(name.startswith("RABBITMQ_") or name == "HEADWAY_BUS" for name in refused):
        unknown["HEADWAY_BUS"] = INVALID
    if any(name.startswith("MONGODB_") or name == "HEADWAY_STORE" for name in refused):
        unknown["HEADWAY_STORE"] = INVALID
    if unknown and not settings.get(SEQUENCES):
        unknown[SEQUENCES] = INVALID
    return unknown


def _cause(
    section: Callable[[Mapping[str, str]], dict[str, str]],
    settings: Mapping[str, str],
    message: str,
) -> str | None:
    """Name the setting without which a section no longer fails with this message."""
    # A setting that the message names goes before one that merely makes it another message.
    last = len(message)
    for name in sorted(settings, key=lambda each: _place(each, message) % (last + 1)):
        try:
            section(_without(settings, name))
        except ConfigurationError as error:
            if str(error) == message:
                continue
        return name
    return None


def _place(name: str, message: str) -> int:
    """Say where a message names a setting; -1: nowhere."""
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message)
    return -1 if found is None else found.start()


def _without(settings: Mapping[str, str], name: str) -> dict[str, str]:
    return {each: value for each, value in settings.items() if each != name}


def _sweep(given: Mapping[str, str]) -> dict[str, str]:
    settings = SweepSettings.from_mapping(given)
    if not set(settings.max_attempts) <= set(map(setting_of, ATTEMPTS)):
        # Only services know which collections there are.
        from headway.apps.cli.lifecycles import rules_of  # noqa: PLC0415 (it loads what it needs)

        rules_of((), given)
    return settings.in_force()


def _engine(settings: Mapping[str, str]) -> dict[str, str]:
    engine = engine_settings(settings=settings)
    if settings.get(SEQUENCES):
        read_sequences_url(SEQUENCES, settings[SEQUENCES])
    is_broker = isinstance(engine.bus, AmqpUrl)
    beside = {
        "HEADWAY_STORE": shown_url(engine.store_url)
        or "none: every event is handled at least once",
        "HEADWAY_EXCHANGE": engine.exchange,
    }
    return {
        SETTINGS_FILE: shown_file(settings.get(SETTINGS_FILE, "")) or "none",
        "HEADWAY_BUS": shown_url(engine.url),
        **(beside if is_broker else {}),
        SEQUENCES: shown_url(settings.get(SEQUENCES) or _in_file(engine)) or "none",
        SERVICES: " ".join(named_services(settings)) or "none",
        LOG_LEVEL: log_level(settings),
        ERRORS: settings.get(ERRORS) or DEFAULT_ERRORS,
        UI_TOKEN: "***" if ui_token(settings) else "none",
        UI_HOSTS: ",".join(ui_hosts(settings)) or "none",
        SECRET_FIELDS: ", ".join(read_secret_fields(settings)) or "none besides the built-in names",
    }


def _metrics(settings: Mapping[str, str]) -> dict[str, str]:
    from headway.assembly.metrics import (  # noqa: PLC0415 (a fast start of other commands)
        SETTING,
        metrics_backend,
    )

    return {SETTING: metrics_backend(settings)}


def _reports(settings: Mapping[str, str]) -> dict[str, str]:
    from headway.assembly.reporting import (  # noqa: PLC0415 (a fast start of other commands)
        ADDRESS,
        SETTING,
        reporter_type,
    )

    return {
        SETTING: reporter_type(settings),
        ADDRESS: shown_url(checked_url(settings.get(ADDRESS, "").strip() or ERRORS_URL)),
    }


def _in_file(engine: EngineSettings) -> str:
    """Say where sequences are if nothing was said of them."""
    if isinstance(engine.bus, SqliteUrl):
        return engine.url
    return engine.store_url if isinstance(engine.store, SqliteUrl) else ""


def _retry(settings: Mapping[str, str]) -> dict[str, str]:
    """Name each field by the first of its settings, in that setting's unit."""
    values = asdict(RetryConfig.from_mapping(settings))
    shown: dict[str, str] = {}
    for setting in RETRY_SETTINGS:
        if setting.field in values:
            value = values.pop(setting.field)
            if isinstance(value, timedelta):
                value = value / timedelta(**{_unit(setting.name): 1})
            shown[f"RETRY_{setting.name}"] = f"{value:g}"
    return shown


def _unit(name: str) -> str:
    return {"MS": "milliseconds", "SECONDS": "seconds", "MINUTES": "minutes"}[
        name.rpartition("_")[2]
    ]
