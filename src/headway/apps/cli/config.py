"""`headway config`: what is in force."""

import json
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from headway.adapters.reporting.http import URL as ERRORS_URL
from headway.assembly.settings import (
    SEQUENCES,
    SERVICES,
    EngineSettings,
    engine_settings,
    environment,
    retry_config,
    sweep_settings,
)
from headway.core.engine_url import AmqpUrl, SqliteUrl
from headway.core.lifecycle import ATTEMPTS
from headway.core.policy import RETRY_SETTINGS, RetryConfig
from headway.core.secrets import hidden
from headway.core.sweep_settings import SweepSettings, setting_of
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.ledger.settings import LedgerSettings
from headway.systems.uptime.settings import UptimeSettings

app = typer.Typer(help="Settings.", no_args_is_help=True)


@app.callback()
def config() -> None:
    """Settings."""


@app.command()
def show(
    as_json: Annotated[bool, typer.Option("--json", help="One object, for machines.")] = False,
) -> None:
    """Show every setting with the value in force; passwords are hidden."""
    _refuse_misspelt_attempts(sweep_settings())
    settings = (
        _engine()
        | _retry(retry_config())
        | sweep_settings().in_force()
        | LedgerSettings.from_mapping(environment()).in_force()
        | UptimeSettings.from_mapping(environment()).in_force()
        | ConsensusSettings.from_mapping(environment()).in_force()
    )
    if as_json:
        typer.echo(json.dumps(settings, indent=2))
        return
    width = max(map(len, settings))
    for name, value in settings.items():
        typer.echo(f"{name:<{width}}  {value}")


def _refuse_misspelt_attempts(settings: SweepSettings) -> None:
    """Refuse what a sweep would; which collections there are, only services can tell."""
    if set(settings.max_attempts) <= set(map(setting_of, ATTEMPTS)):
        return
    from headway.apps.cli.lifecycles import rules_of  # noqa: PLC0415 (it loads what it needs)

    rules_of(())


def _engine() -> dict[str, str]:
    settings, engine = environment(), engine_settings()
    is_broker = isinstance(engine.bus, AmqpUrl)
    beside = {
        "HEADWAY_STORE": hidden(engine.store_url) or "none: every event is handled at least once",
        "HEADWAY_EXCHANGE": engine.exchange,
    }
    return {
        "HEADWAY_BUS": hidden(engine.url),
        **(beside if is_broker else {}),
        SEQUENCES: hidden(settings.get(SEQUENCES) or _in_file(engine)),
        SERVICES: settings.get(SERVICES) or "none",
        "METRICS_BACKEND": settings.get("METRICS_BACKEND") or "noop",
        "ERROR_REPORTER_TYPE": settings.get("ERROR_REPORTER_TYPE") or "http",
        "ERROR_REPORTER_URL": hidden(settings.get("ERROR_REPORTER_URL") or ERRORS_URL),
    }


def _in_file(engine: EngineSettings) -> str:
    """Say where sequences are if nothing was said of them."""
    if isinstance(engine.bus, SqliteUrl):
        return engine.url
    return engine.store_url if isinstance(engine.store, SqliteUrl) else "none"


def _retry(config: RetryConfig) -> dict[str, str]:
    """Name each field by the first of its settings, in that setting's unit."""
    values = asdict(config)
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
