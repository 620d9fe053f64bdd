"""The ledger as processes: started together, asked to stop, watched from outside."""

import json
import os
import signal
from datetime import timedelta
from pathlib import Path

import httpx

from headway.systems.ledger.load.plan import hot_run
from headway.systems.ledger.load.proof import faults
from headway.systems.ledger.load.sending import Senders
from headway.testing.servers.loopback import free_port
from headway.testing.servers.process import wait_until
from tests.systems.ledger.ledgers import EVENTS, a_server, an_event

SOON = timedelta(seconds=20)


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


def test_the_metrics_of_all_workers_are_one_and_leave_no_folder_behind(
    sqlite_database: str, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    where = {"TMPDIR": str(temporary)}
    with a_server(tmp_path, sqlite_database, "--workers", "2", environment=where) as server:
        for number in range(10):
            httpx.post(server.url + EVENTS, json=an_event(event_id=f"e{number}"))
        line = 'ledger_events_total{event_type="LoanPaymentSubmitted",outcome="stored"} 10.0'
        for _ in range(6):  # whichever worker answers
            assert line in httpx.get(server.url + "/metrics").text
        assert len(server.process.tree()) >= 3
        assert server.process.end(signal.SIGTERM, SOON)
    assert list(temporary.iterdir()) == []


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


def test_a_database_that_cannot_be_used_stops_the_start_in_one_line(tmp_path: Path) -> None:
    for database in (
        f"sqlite:///{tmp_path}/missing/ledger.db",
        f"postgresql://u:s3cret@127.0.0.1:{free_port()}/books",
    ):
        with a_server(tmp_path, database, ready=False) as server:
            assert wait_until(lambda: not server.process.is_running(), SOON)
        (line,) = server.log.read_text().splitlines()
        assert "LEDGER_DATABASE_URL" in line
        assert "s3cret" not in line
