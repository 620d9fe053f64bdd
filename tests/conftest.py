"""Real servers for all tests: each started once per run (or xdist worker), when first asked for."""

import logging
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headway.assembly.retrying import LOGS
from headway.testing.servers import (
    Alertmanager,
    MongoDB,
    PgBouncer,
    PostgreSQL,
    Prometheus,
    Pushgateway,
    RabbitMQ,
    Redis,
    Server,
)

_SERVERS: dict[str, type[Server]] = {
    server.name.lower(): server
    for server in (
        *(Alertmanager, MongoDB, PgBouncer, PostgreSQL, Prometheus, Pushgateway, RabbitMQ, Redis),
    )
}


# Errors that tests make on purpose are nobody's business, also in the processes that they start.
os.environ["ERROR_REPORTER_TYPE"] = "noop"


@pytest.fixture(autouse=True)
def equal_lines_of_two_tests_are_not_summed_up() -> Iterator[None]:
    yield
    LOGS.flush()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos", action="store_true", help="run the tests marked chaos too")
    parser.addoption("--seed", type=int, help="run this seed of the simulation, and no other")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        _refuse_a_name_of_chance(item)
    if config.getoption("--chaos"):
        return
    chaos = [item for item in items if item.get_closest_marker("chaos")]
    config.hook.pytest_deselected(items=chaos)
    items[:] = [item for item in items if item not in chaos]


def _refuse_a_name_of_chance(item: pytest.Item) -> None:
    """Two processes that share the tests must call them the same; each orders a set its own way."""
    call: Any = getattr(item, "callspec", None)
    for value in call.params.values() if call else ():
        if isinstance(value, set | frozenset) and len(value) > 1 and str(value) in item.name:
            raise pytest.UsageError(f"{item.nodeid} has a set in its name. Give it ids=[...].")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """After fault tests, print what they recorded as rows for the page of promises."""
    if not config.getoption("--chaos"):
        return
    rows = [
        f"| {report.nodeid.partition('::')[2]} | {value} |"
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "shown"
    ]
    if rows:
        terminalreporter.write_line("\n".join(["", "| fault test | seen |", "|---|---|", *rows]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("server"):
        (name,) = marker.args
        if name not in _SERVERS:
            pytest.fail(f"No server is named {name!r}. There are: {', '.join(_SERVERS)}.")
        _need(_SERVERS[name])


def _need(server: type[Server]) -> None:
    missing = server.missing()
    if missing is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI tests everything. {missing}", pytrace=False)
    pytest.skip(f"NOT TESTED! {missing}")


class _Socket(socket.socket):
    def __del__(self) -> None:
        self.close()


class _Sockets:
    socket = _Socket

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


@pytest.fixture(autouse=True)
def _log_of_the_test_alone() -> Iterator[None]:
    """Forget where a command that a test ran writes its log: that stream ends with the test."""
    root = logging.getLogger()
    before, level = [*root.handlers], root.level
    yield
    for handler in [each for each in root.handlers if each not in before]:
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def _forgotten_sockets() -> None:
    """Close what pymongo forgets when it is cancelled while it connects: it would be an error.

    Whether that happens depends on when a test ends, and the warning comes in some later test.
    """
    if "pymongo" in sys.modules:
        from pymongo import pool_shared  # noqa: PLC0415 (where no test needs it, nobody loads it)

        vars(pool_shared)["socket"] = _Sockets()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgreSQL]:
    _need(PostgreSQL)
    with PostgreSQL() as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer_server(postgres_server: PostgreSQL) -> Iterator[PgBouncer]:
    """A pooler that gives each transaction another session."""
    _need(PgBouncer)
    with PgBouncer(postgres_server) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    _need(Redis)
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMQ]:
    _need(RabbitMQ)
    with RabbitMQ() as server:
        yield server


@pytest.fixture(scope="session")
def mongodb_server() -> Iterator[MongoDB]:
    _need(MongoDB)
    with MongoDB() as server:
        yield server


@pytest.fixture(scope="session")
def pushgateway_server() -> Iterator[Pushgateway]:
    _need(Pushgateway)
    with Pushgateway() as server:
        yield server


@pytest.fixture(scope="session")
def alertmanager_server() -> Iterator[Alertmanager]:
    _need(Alertmanager)
    with Alertmanager() as server:
        yield server


@pytest.fixture(scope="session")
def prometheus_server(
    pushgateway_server: Pushgateway, alertmanager_server: Alertmanager
) -> Iterator[Prometheus]:
    """A Prometheus that fetches what is pushed; a test with rules of its own starts its own."""
    _need(Prometheus)
    targets = {"pushgateway": pushgateway_server.url}
    with Prometheus(targets=targets, alertmanager=alertmanager_server.url) as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server: PostgreSQL) -> str:
    """The URL of an empty database."""
    return postgres_server.create_database()


@pytest.fixture
def redis_database(redis_server: Redis) -> str:
    """The URL of an empty database."""
    return redis_server.create_database()


@pytest.fixture
def mongodb_database(mongodb_server: MongoDB) -> str:
    """The URL of an empty database."""
    return mongodb_server.create_database()


@pytest.fixture
def rabbitmq_vhost(rabbitmq_server: RabbitMQ) -> Iterator[str]:
    """The URL of an empty virtual host."""
    url = rabbitmq_server.create_vhost()
    yield url
    rabbitmq_server.delete_vhost(url)


@pytest.fixture
def coarse_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine steps of delay on RabbitMQ instead of fifty, for tests of what they have no part in.

    A broker takes more than a second to make and to remove the queues of all of them, for each
    test. Processes that a test starts make them all.
    """
    from headway.adapters.rabbitmq import outgoing, places, topology  # noqa: PLC0415 (as above)

    steps = (100, 200, 400, 600, 1_000, 2_000, 5_000, 30_000, topology.STEPS[-1])
    assert set(steps) <= set(topology.STEPS)
    for module in (outgoing, places, topology):
        monkeypatch.setattr(module, "STEPS", steps)
