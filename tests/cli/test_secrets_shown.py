"""No command shows a password: not of a URL that works, and not of one that is mistyped."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.commands import app

PASSWORDS = [
    "hunter2",
    "a hunter2",
    "a'hunter2",
    'a"hunter2',
    "a@hunter2",
    "a#hunter2",
    "%40hunter2",
]
URLS = [
    *(f"amqp://bob:{each}@127.0.0.1:1/shop" for each in PASSWORDS),
    *(f"postgresql://bob:{each}@127.0.0.1:1/shop" for each in PASSWORDS),
    *(f"mongodb://bob:{each}@127.0.0.1:1/shop" for each in PASSWORDS),
    *(f"redis://:{each}@127.0.0.1:1/0" for each in PASSWORDS),
    "amqp:/bob:hunter2@h",
    "amqp//bob:hunter2@h",
    "bob:hunter2@h",
    "hunter2:bob@h",
    "amqp://bob:1/hunter2@h",
    "amqp://bob:hunter2",
    "amqp://bob@hunter2@h",
]
SETTINGS = ["HEADWAY_BUS", "HEADWAY_STORE", "HEADWAY_SEQUENCES", "ERROR_REPORTER_URL"]
SYSTEMS = ["LEDGER_DATABASE_URL", "UPTIME_SEQUENCES", "UPTIME_CELERY_BROKER", "CONSENSUS_VECTORS"]


def said(*words: str, env: dict[str, str]) -> str:
    done = CliRunner().invoke(app, words, env=env)
    return f"{done.output} {done.stderr} {done.exception!r}"


@pytest.mark.parametrize("name", [*SETTINGS, *SYSTEMS, "PUSHGATEWAY_URL"])
@pytest.mark.parametrize("url", URLS)
def test_config_show_shows_no_password(
    name: str, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {
        "HEADWAY_BUS": "amqp://127.0.0.1:1",
        "METRICS_BACKEND": "prometheus_pushgateway",
        "PUSHGATEWAY_URL": "http://127.0.0.1:1",
    }
    shown = said("config", "show", env={**env, name: url})
    assert name in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("url", URLS[-7:])
def test_errors_show_no_password(url: str) -> None:
    for env, option in (({"HEADWAY_BUS": url}, ()), ({}, ("--bus", url))):
        shown = said("publish", "OrderPlaced", "{}", *option, env=env)
        assert "HEADWAY_BUS" in shown or "--bus" in shown
        assert "hunter2" not in shown


def test_an_engine_that_is_away_is_named_without_its_password() -> None:
    shown = said("failed", "list", "--bus", "amqp://bob:a hunter2@127.0.0.1:1/shop", env={})
    assert "amqp://***" in shown
    assert "hunter2" not in shown
