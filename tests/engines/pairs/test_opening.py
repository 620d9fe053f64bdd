"""Which bus and store the settings mean, and what is refused."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headway import ConfigurationError
from headway.testing.engines import open_engine
from tests.commands import app

_NAMES = ("HOST", "PORT", "USERNAME", "USER", "PASSWORD", "VHOST", "EXCHANGE", "DATABASE")
NO_STORE = "none: every event is handled at least once"
EVENTS = "headway.events"
PARTS = "headway.adapters.rabbitmq.engine.rabbitmq_parts"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BUS", "STORE", "EXCHANGE", "SETTINGS"):
        monkeypatch.delenv(f"HEADWAY_{name}", raising=False)
    for name in _NAMES:
        monkeypatch.delenv(f"RABBITMQ_{name}", raising=False)
        monkeypatch.delenv(f"MONGODB_{name}", raising=False)


def typed(*words: str, **env: str) -> Result:
    return CliRunner().invoke(app, words, env=env)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, ("sqlite:///headway.db", None, None)),
        (
            {
                "HEADWAY_BUS": "amqp://broker",
                "HEADWAY_STORE": "sqlite:///a.db?synchronous=normal",
                "HEADWAY_EXCHANGE": "shop.events",
                "RABBITMQ_HOST": "another",
                "MONGODB_HOST": "another",
            },
            ("amqp://broker", "sqlite:///a.db?synchronous=normal", "shop.events"),
        ),
        (
            {
                "RABBITMQ_HOST": "messagebus",
                "RABBITMQ_PORT": "5673",
                "RABBITMQ_USERNAME": "me",
                "RABBITMQ_PASSWORD": "secret",
                "RABBITMQ_EXCHANGE": "copilot.events",
            },
            ("amqp://me:***@messagebus:5673/%2F", NO_STORE, "copilot.events"),
        ),
        (
            {
                "RABBITMQ_HOST": "bus",
                "MONGODB_HOST": "documentdb",
                "MONGODB_DATABASE": "copilot",
            },
            ("amqp://guest:***@bus:5672/%2F", "mongodb://documentdb:27017/copilot", EVENTS),
        ),
        *(
            ({"HEADWAY_BUS": "amqp://broker", name: "x"}, ("amqp://broker", NO_STORE, EVENTS))
            for name in ("HEADWAY_PORT_80_TCP", "RABBITMQ_NODENAME", "RABBITMQ_SERVICE_HOST")
        ),
    ],
)
def test_settings_name_bus_store_and_exchange(
    given: dict[str, str], shown: tuple[str | None, ...]
) -> None:
    found = json.loads(typed("config", "show", "--json", **given).stdout)
    assert tuple(found.get(f"HEADWAY_{name}") for name in ("BUS", "STORE", "EXCHANGE")) == shown


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"HEADWAY_STORE": "sqlite:///a.db"}, "HEADWAY_STORE.*HEADWAY_BUS"),
        (
            {"HEADWAY_BUS": "sqlite:///a.db", "HEADWAY_STORE": "sqlite:///b.db"},
            "HEADWAY_STORE='sqlite:///b.db'",
        ),
        ({"HEADWAY_BUS": "sqlite:///a.db", "HEADWAY_EXCHANGE": "x"}, "HEADWAY_EXCHANGE='x'"),
        (
            {"HEADWAY_BUS": "amqp://broker", "HEADWAY_STORE": "amqp://me:secret@broker"},
            r"HEADWAY_STORE 'amqp://me:\*\*\*@broker'",
        ),
        ({"HEADWAY_EXCHANGES": "x"}, r"HEADWAY_EXCHANGE\b"),
        ({"HEADWAY_PREFETCH": "1"}, "HEADWAY_PREFETCH.*HEADWAY_BUS, HEADWAY_STORE"),
        ({"RABBITMQ_HOST": "broker", "RABBITMQ_PASWORD": "x"}, "RABBITMQ_PASSWORD"),
        (
            {"HEADWAY_BUS": "amqp://broker", "HEADWAY_STORE": "nonsense://"},
            "HEADWAY_STORE 'nonsense://'.*mongodb://",
        ),
    ],
)
def test_settings_that_make_no_sense_together_are_refused(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], said: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=said):
        open_engine()


@pytest.mark.parametrize(
    ("bus", "store", "driver", "extra"),
    [
        ("amqp://me:secret@host", "", "pika", "rabbitmq"),
        ("amqp://host", "mongodb://me:secret@host/app", "pymongo", "mongodb"),
        ("amqp://host", "postgresql://me:secret@host/app", "asyncpg", "asyncpg"),
    ],
)
def test_an_engine_without_its_driver_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, bus: str, store: str, driver: str, extra: str
) -> None:
    real = builtins.__import__
    kind = {"pika": "rabbitmq.engine", "pymongo": "mongodb.store", "asyncpg": "postgres.store"}

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == f"headway.adapters.{kind[driver]}":
            raise ModuleNotFoundError(f"No module named {driver!r}", name=driver)
        return real(name, *rest, **more)

    if store:
        monkeypatch.setenv("HEADWAY_STORE", store)
        monkeypatch.setattr(
            "headway.adapters.rabbitmq.engine.rabbitmq_parts", lambda *_, **__: None
        )
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigurationError, match=rf"me:\*\*\*@host.*headway\[{extra}\]"):
        open_engine(bus)


def test_a_store_that_is_not_there_is_refused_before_any_decision(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/typo.db"
    refused = typed("verify", HEADWAY_BUS="amqp://broker", HEADWAY_STORE=store).exception
    assert isinstance(refused, ConfigurationError)
    assert "typo.db" in str(refused)
    assert not (tmp_path / "typo.db").exists()


@pytest.mark.usefixtures("coarse_delays")
def test_a_publisher_needs_no_store_and_a_typed_bus_goes_before_the_environment(
    rabbitmq_vhost: str, tmp_path: Path
) -> None:
    given = {"HEADWAY_BUS": "sqlite:///other.db", "HEADWAY_STORE": f"sqlite:///{tmp_path}/later.db"}
    done = typed("publish", "OrderPlaced", "{}", "--bus", rabbitmq_vhost, **given)
    assert (done.exit_code, done.exception) == (0, None)
    listed = typed("unrouted", "list", "--json", "--bus", rabbitmq_vhost).stdout
    assert "OrderPlaced" in listed
    assert list(tmp_path.iterdir()) == []
