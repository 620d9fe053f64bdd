"""The ledger as processes: started together, asked to stop, watched from outside."""

import asyncio
import json
import os
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from headway.assembly.http_server import LAST_REQUESTS
from headway.systems.ledger.front_door import create_app
from headway.systems.ledger.load.plan import hot_run
from headway.systems.ledger.load.proof import faults
from headway.systems.ledger.load.sending import Senders
from headway.systems.ledger.metrics import LedgerMetrics
from headway.systems.ledger.opening import open_store
from headway.systems.ledger.settings import LedgerSettings
from headway.testing.proxy import Proxy
from headway.testing.servers import PostgreSQL
from headway.testing.servers.loopback import free_port
from headway.testing.servers.process import wait_until
from tests.systems.ledger.ledgers import EVENTS, a_server, an_event

SOON = timedelta(seconds=20)
# As `headway ledger serve`, but what has begun gets a second to end instead of LAST_REQUESTS.
IN_A_HURRY = """
import os, sys
from datetime import timedelta
from headway.systems.ledger.serving import serve
from headway.systems.ledger.settings import LedgerSettings
given = {**os.environ, "LEDGER_PORT": sys.argv[2]}
serve(LedgerSettings.from_mapping(given), last_requests=timedelta(seconds=1))
"""


def test_two_servers_may_start_at_once_on_an_empty_database(database: str, tmp_path: Path) -> None:
    with (
        a_server(tmp_path, database, ready=False) as one,
        a_server(tmp_path, database, ready=False) as other,
    ):
        for number, server in enumerate((one, other)):
            assert wait_until(server.is_ready, SOON), server.log.read_text()
            answer = httpx.post(server.url + EVENTS, json=an_event(event_id=f"e{number}"))
            assert answer.status_code == 201
        assert httpx.get(one.url + "/api/v1/entities/loan-1").json()["payments"] == 2


async def test_many_may_make_the_tables_at_once(database: str) -> None:
    settings = LedgerSettings(database_url=database)
    await asyncio.gather(*(open_store(settings).prepare() for _ in range(12)))


async def test_a_worker_that_starts_while_the_database_is_away_waits_for_it(
    postgres_server: PostgreSQL, postgres_database: str
) -> None:
    with Proxy(*postgres_server.address) as proxy:
        settings = LedgerSettings(database_url=proxy.through(postgres_database))
        await open_store(settings).prepare()
        proxy.refuse()
        app = create_app(open_store(settings), settings, LedgerMetrics(CollectorRegistry()))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
        ):
            assert (await http.get("/health")).status_code == 503
            proxy.heal()
            assert (await http.get("/health")).status_code == 200


def test_a_client_that_never_ends_its_body_does_not_keep_the_server(
    sqlite_database: str, tmp_path: Path
) -> None:
    assert timedelta(0) < LAST_REQUESTS < timedelta(minutes=1)
    with a_server(tmp_path, sqlite_database, command=(sys.executable, "-c", IN_A_HURRY)) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(
                b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
            )
            assert httpx.get(server.url + "/health").status_code == 200
            assert server.process.end(signal.SIGTERM, SOON)


def test_the_metrics_of_all_workers_are_one(sqlite_database: str, tmp_path: Path) -> None:
    with a_server(tmp_path, sqlite_database, "--workers", "2") as server:
        for number in range(10):
            httpx.post(server.url + EVENTS, json=an_event(event_id=f"e{number}"))
        line = 'ledger_events_total{event_type="LoanPaymentSubmitted",outcome="stored"} 10.0'
        for _ in range(6):  # whichever worker answers
            assert line in httpx.get(server.url + "/metrics").text
        workers = server.process.tree()
        assert len(workers) >= 3
        assert server.process.end(signal.SIGTERM, SOON)


async def test_a_server_told_to_stop_keeps_every_promise_it_gave(
    database: str, tmp_path: Path
) -> None:
    plan = hot_run(events=120, entities=4)
    answered = 0
    with a_server(tmp_path, database) as server:

        def stop_in_the_middle() -> None:
            nonlocal answered
            answered += 1
            if answered == 30:
                os.kill(server.process.pid, signal.SIGTERM)

        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            senders = Senders(http=http, clients=8, honour_retry_after=False)
            deliveries = await senders.send_all([*plan.prepare, *plan.events], stop_in_the_middle)
        assert wait_until(lambda: not server.process.is_running(), SOON)
    told = [delivery.stored for delivery in deliveries]
    assert 20 < told.count(True) < 120
    assert None in told
    with a_server(tmp_path, database) as server:
        async with httpx.AsyncClient(base_url=server.url) as http:
            assert await faults(http, plan.name, deliveries) == ()


async def test_parallel_events_on_one_entity_conflict_and_lose_nothing(
    database: str, tmp_path: Path
) -> None:
    with a_server(tmp_path, database) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            sends = (
                http.post(EVENTS, json=an_event(event_id=f"e{number}")) for number in range(12)
            )
            answers = await asyncio.gather(*sends)
            statuses = [answer.status_code for answer in answers]
            loan = (await http.get("/api/v1/entities/loan-1")).json()
            metrics = (await http.get("/metrics")).text
    assert loan["payments"] == statuses.count(201) >= 11
    assert loan["paid_cents"] == loan["payments"] * 25_000
    assert "headway_retries_total" in metrics


def test_logs_are_json_with_the_fields_of_the_event(sqlite_database: str, tmp_path: Path) -> None:
    with a_server(tmp_path, sqlite_database) as server:
        httpx.post(server.url + EVENTS, json=an_event())
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    (line,) = [line for line in lines if line["message"] == "Event stored"]
    assert line.pop("timestamp")
    assert len(line.pop("transaction_id")) == 32
    assert line == {
        "level": "INFO",
        "logger": "headway.ledger",
        "message": "Event stored",
        "event_id": "event-1",
        "event_type": "LoanPaymentSubmitted",
        "event_name": "Loan Payment Submitted",
    }


@pytest.mark.parametrize("path", ["/missing/ledger.db", "/"])
def test_a_database_that_cannot_be_used_stops_the_start(tmp_path: Path, path: str) -> None:
    with a_server(tmp_path, f"sqlite:///{tmp_path}{path}", ready=False) as server:
        assert wait_until(lambda: not server.process.is_running(), SOON)
    said = server.log.read_text()
    assert said.startswith(("headway: LEDGER_DATABASE_URL", "headway: Invalid LEDGER_DATABASE_URL"))
    assert len(said.splitlines()) == 1


def said_by_a_start_on(database: str, folder: Path) -> str:
    with a_server(folder, database, ready=False) as server:
        assert wait_until(lambda: not server.process.is_running(), SOON)
    (line,) = server.log.read_text().splitlines()
    return line


def test_a_server_that_is_not_running_is_said_in_one_line_with_the_cure(tmp_path: Path) -> None:
    said = said_by_a_start_on(f"postgresql://u:s3cret@127.0.0.1:{free_port()}/books", tmp_path)
    assert said.startswith("headway: LEDGER_DATABASE_URL='postgresql://u:***@127.0.0.1:")
    assert "is the server running there" in said
    assert "s3cret" not in said


def test_a_database_that_does_not_exist_is_said_in_one_line_with_the_cure(
    postgres_server: PostgreSQL, tmp_path: Path
) -> None:
    url = postgres_server.create_database().rpartition("/")[0]
    said = said_by_a_start_on(f"{url}/nowhere", tmp_path)
    assert 'database "nowhere" does not exist' in said
    assert "createdb nowhere" in said


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_told_to_stop_leaves_no_folder_behind(
    sqlite_database: str, tmp_path: Path, workers: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with a_server(
        tmp_path,
        sqlite_database,
        "--workers",
        workers,
        environment={"TMPDIR": str(temporary)},
    ) as server:
        httpx.post(server.url + EVENTS, json=an_event())
        assert server.process.end(signal.SIGTERM, SOON)
    assert list(temporary.iterdir()) == []


def test_a_server_told_to_stop_while_it_starts_leaves_no_folder_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # so the start takes its time
        port = silent.getsockname()[1]
        with a_server(
            tmp_path,
            f"postgresql://u@127.0.0.1:{port}/x",
            "--workers",
            "2",
            environment={"TMPDIR": str(temporary)},
            ready=False,
        ) as server:
            assert wait_until(lambda: any(temporary.iterdir()), SOON)
            assert server.process.end(signal.SIGTERM, SOON)
    assert list(temporary.iterdir()) == []
