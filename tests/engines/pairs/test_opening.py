"""Which engine the settings mean, and what is refused."""

import asyncio
import builtins
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from headway import ConfigurationError
from headway.assembly.settings import engine_settings
from headway.clock import CLOCK, Clock
from headway.core.engine_url import AmqpUrl
from headway.runtime.finishing import StoreThenBus
from headway.runtime.storeless import BusOnly
from headway.settings import MongoUrl, SqliteUrl
from headway.testing.clock import VirtualClock
from headway.testing.conformance.examples import ORDERS, key_of, publish, unit
from headway.testing.engines import SqliteEngine, State, open_engine
from tests.commands import app
from tests.engines.pairs.harnesses import Parts, bus_parts

_NAMES = ("HEADWAY_BUS", "HEADWAY_STORE", "HEADWAY_EXCHANGE", "HEADWAY_SETTINGS")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    for name in ("HOST", "PORT", "USERNAME", "USER", "PASSWORD", "VHOST", "EXCHANGE"):
        monkeypatch.delenv(f"RABBITMQ_{name}", raising=False)
        monkeypatch.delenv(f"MONGODB_{name}", raising=False)
    monkeypatch.delenv("MONGODB_DATABASE", raising=False)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    def given(**settings: str) -> None:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)

    return given


def test_without_any_setting_it_is_one_file() -> None:
    found = engine_settings()
    assert (found.bus, found.store, found.url) == (
        SqliteUrl("headway.db"),
        None,
        "sqlite:///headway.db",
    )


def test_a_broker_with_a_store_and_an_exchange(given: Any) -> None:
    given(
        HEADWAY_BUS="amqp://broker",
        HEADWAY_STORE="sqlite:///a.db?synchronous=normal",
        HEADWAY_EXCHANGE="shop.events",
        RABBITMQ_HOST="another",
        RABBITMQ_EXCHANGE="other.events",
    )
    found = engine_settings()
    assert (found.bus, found.store) == (AmqpUrl("broker", 5672), SqliteUrl("a.db", "normal"))
    assert (found.name, found.exchange) == ("HEADWAY_BUS", "shop.events")


def test_a_broker_by_the_names_of_the_documents(given: Any) -> None:
    given(
        RABBITMQ_HOST="messagebus",
        RABBITMQ_PORT="5672",
        RABBITMQ_USERNAME="guest",
        RABBITMQ_PASSWORD="secret",
        RABBITMQ_EXCHANGE="copilot.events",
    )
    found = engine_settings()
    assert found.bus == AmqpUrl("messagebus", 5672, password="secret")
    assert (found.name, found.exchange, found.store) == ("RABBITMQ_HOST", "copilot.events", None)
    assert engine_settings("sqlite:///a.db").bus == SqliteUrl("a.db")


def test_mongodb_by_the_names_of_the_documents(given: Any) -> None:
    given(MONGODB_HOST="documentdb", MONGODB_DATABASE="copilot")
    assert engine_settings().store is None  # a file is its own store
    given(RABBITMQ_HOST="messagebus")
    found = engine_settings()
    assert found.store == MongoUrl("copilot", "mongodb://documentdb:27017/copilot")
    assert (found.store_name, found.store_url) == (
        "MONGODB_HOST",
        "mongodb://documentdb:27017/copilot",
    )
    given(HEADWAY_STORE="sqlite:///a.db")
    found = engine_settings()
    assert (found.store_name, found.store) == ("HEADWAY_STORE", SqliteUrl("a.db"))


def test_what_is_typed_goes_before_the_environment(given: Any) -> None:
    given(HEADWAY_BUS="sqlite:///a.db", HEADWAY_STORE="sqlite:///a.db")
    found = engine_settings("amqp://broker")
    assert (found.name, found.bus, found.store) == (
        "--bus",
        AmqpUrl("broker", 5672),
        SqliteUrl("a.db"),
    )
    assert engine_settings("sqlite:///b.db").store is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"HEADWAY_STORE": "sqlite:///a.db"},
            "HEADWAY_STORE='sqlite:///a.db' is not accepted alone.*set HEADWAY_BUS too",
        ),
        (
            {"HEADWAY_BUS": "sqlite:///a.db", "HEADWAY_STORE": "sqlite:///b.db"},
            "HEADWAY_STORE='sqlite:///b.db' names another engine.*set HEADWAY_BUS only",
        ),
        (
            {"HEADWAY_BUS": "sqlite:///a.db", "HEADWAY_EXCHANGE": "x"},
            "HEADWAY_EXCHANGE='x' is not accepted.*only a broker has exchanges",
        ),
        (
            {"HEADWAY_BUS": "amqp://broker", "HEADWAY_STORE": "amqp://me:secret@broker"},
            r"Invalid HEADWAY_STORE 'amqp://me:\*\*\*@broker': a broker keeps no records",
        ),
        ({"HEADWAY_EXCHANGES": "x"}, "did you mean HEADWAY_EXCHANGE"),
        (
            {"HEADWAY_PREFETCH": "1"},
            "HEADWAY_PREFETCH is no setting: there are: HEADWAY_BUS, HEADWAY_STORE, ",
        ),
        (
            {"RABBITMQ_HOST": "broker", "RABBITMQ_PASWORD": "x"},
            r"RABBITMQ_PASWORD is no setting: did you mean RABBITMQ_PASSWORD\?",
        ),
        (
            {"HEADWAY_BUS": "amqp://broker", "HEADWAY_STORE": "nonsense://"},
            "Invalid HEADWAY_STORE 'nonsense://': unsupported scheme 'nonsense'.*[Oo]r mongodb://",
        ),
    ],
)
def test_settings_that_make_no_sense_together_are_refused(
    given: Any, settings: dict[str, str], said: str
) -> None:
    given(**settings)
    with pytest.raises(ConfigurationError, match=said):
        engine_settings()


@pytest.mark.parametrize(
    "name",
    [
        "HEADWAY_SERVICE_HOST",
        "HEADWAY_PORT_80_TCP",
        "RABBITMQ_NODENAME",
        "RABBITMQ_DEFAULT_PASS",
        "RABBITMQ_SERVICE_HOST",
        "RABBITMQ_NODE_PORT",
        "RABBITMQ_LOGS",
    ],
)
def test_what_others_set_is_not_taken_for_misspelt(given: Any, name: str) -> None:
    given(**{"RABBITMQ_HOST": "broker", name: "x"})
    assert engine_settings().bus == AmqpUrl("broker", 5672)


# Opening


@dataclass
class Asked:
    """What the adapter of the broker was asked for, and what it gave."""

    url: str = ""
    exchange: str = ""
    has_store: bool = False
    state: State | None = None


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(state=State())

    def rabbitmq_parts(
        url: str,
        clock: Clock,
        _chance: object,
        *,
        exchange: str,
        has_store: bool,
        patient: bool,
        for_worker: bool,
    ) -> Parts:
        assert (patient, for_worker) == (True, False)
        asked.url, asked.exchange, asked.has_store = url, exchange, has_store
        assert asked.state is not None
        return bus_parts(asked.state, clock)

    module = ModuleType("headway.adapters.rabbitmq.engine")
    module.rabbitmq_parts = rabbitmq_parts  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "headway.adapters.rabbitmq.engine", module)
    return asked


async def test_a_file_is_opened_as_ever(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/a.db")
    assert isinstance(engine, SqliteEngine)
    await engine.close()


async def test_a_broker_alone(broker: Asked, given: Any) -> None:
    given(RABBITMQ_HOST="messagebus", RABBITMQ_PASSWORD="top/secret")
    engine = open_engine()
    assert isinstance(engine.finisher, BusOnly)
    assert not engine.has_store
    assert not broker.has_store
    assert broker.url == "amqp://guest:top%2Fsecret@messagebus:5672/%2F"
    assert broker.exchange == "headway.events"
    await engine.close()


async def test_a_broker_with_a_store_beside_it(broker: Asked, given: Any, tmp_path: Path) -> None:
    given(HEADWAY_STORE=f"sqlite:///{tmp_path}/a.db", HEADWAY_EXCHANGE="x")
    clock = VirtualClock()
    engine = open_engine("amqps://broker/shop", clock=clock)
    assert isinstance(engine.finisher, StoreThenBus)
    assert (engine.has_store, broker.has_store, broker.exchange) == (True, True, "x")
    assert broker.url == "amqps://guest:guest@broker:5671/shop"
    await engine.bus.open([ORDERS])
    await publish(engine, "a")
    (delivery,) = await engine.bus.take([ORDERS.name], 1)
    await engine.finisher.finish([unit(delivery, clock.now())])
    assert await engine.records.find([key_of(delivery)])
    await engine.close()
    with pytest.raises(RuntimeError, match="is closed"):
        await engine.records.dispatched(["a"])


@pytest.mark.server("mongodb")
@pytest.mark.usefixtures("broker")
async def test_a_broker_with_mongodb_beside_it(given: Any, mongodb_database: str) -> None:
    given(HEADWAY_STORE=mongodb_database)
    engine = open_engine("amqp://broker")
    await engine.open([ORDERS])
    await publish(engine, "a")
    (delivery,) = await engine.bus.take([ORDERS.name], 1)
    await engine.finisher.finish([unit(delivery, CLOCK.now())])
    assert await engine.records.find([key_of(delivery)])
    assert engine.sweeping is not None
    async with engine.documents_aside() as documents:
        assert await documents.fetch("docs", ["1"]) == {}
    await engine.close()


def test_a_broker_without_its_driver_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "headway.adapters.rabbitmq.engine":
            raise ModuleNotFoundError("No module named 'pika'", name="pika")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(
        ConfigurationError, match=r"--bus='amqp://me:\*\*\*@broker' needs pika: pip install"
    ) as refused:
        open_engine("amqp://me:secret@broker")
    assert "'/path/to/headway[rabbitmq]'" in str(refused.value)


@pytest.mark.parametrize(
    ("scheme", "driver", "extra"),
    [
        ("mongodb", "pymongo", "mongodb"),
        ("mongodb", "bson", "mongodb"),
        ("postgresql", "asyncpg", "asyncpg"),
    ],
)
@pytest.mark.usefixtures("broker")
def test_a_store_without_its_driver_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, given: Any, scheme: str, driver: str, extra: str
) -> None:
    real = builtins.__import__
    store = f"headway.adapters.{scheme.removesuffix('ql')}.store"

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == store:
            raise ModuleNotFoundError(f"No module named {driver!r}", name=driver)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    given(HEADWAY_STORE=f"{scheme}://me:secret@host/app")
    with pytest.raises(ConfigurationError) as refused:
        open_engine("amqp://broker")
    said = str(refused.value)
    assert said.startswith(f"HEADWAY_STORE='{scheme}://me:***@host/app' needs ")
    assert said.endswith(f"pip install '/path/to/headway[{extra}]'")


# Commands


def typed(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headway.apps.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_store_that_is_not_there_is_refused_before_anybody_decides(
    given: Any, tmp_path: Path
) -> None:
    given(HEADWAY_BUS="amqp://broker", HEADWAY_STORE=f"sqlite:///{tmp_path}/typo.db")
    ran = typed("verify")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert "HEADWAY_STORE " in ran.stderr
    assert "there is no such file" in ran.stderr
    assert not (tmp_path / "typo.db").exists()


async def test_who_only_publishes_needs_no_store(broker: Asked, given: Any, tmp_path: Path) -> None:
    given(HEADWAY_BUS="amqp://broker", HEADWAY_STORE=f"sqlite:///{tmp_path}/later.db")
    done = await asyncio.to_thread(CliRunner().invoke, app, ["publish", "OrderPlaced", "{}"])
    assert (done.exit_code, broker.has_store) == (0, True)
    assert (
        "no service takes OrderPlaced yet. It is kept as unrouted on amqp://broker" in done.stdout
    )
    assert not (tmp_path / "later.db").exists()


def test_what_is_in_force_is_shown_without_passwords(given: Any) -> None:
    given(RABBITMQ_HOST="messagebus", RABBITMQ_PASSWORD="secret")
    shown = json.loads(typed("config", "show", "--json").stdout)
    assert shown["HEADWAY_BUS"] == "amqp://guest:***@messagebus:5672/%2F"
    assert shown["HEADWAY_STORE"] == "none: every event is handled at least once"
    assert shown["HEADWAY_EXCHANGE"] == "headway.events"
