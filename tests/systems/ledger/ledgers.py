"""Ledgers for tests: served inside the test, or by processes of their own."""

import contextlib
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from prometheus_client import CollectorRegistry

from headway.systems.ledger.front_door import create_app
from headway.systems.ledger.metrics import LedgerMetrics
from headway.systems.ledger.opening import open_store
from headway.systems.ledger.settings import LedgerSettings
from headway.testing.servers.loopback import answers_ok, free_port
from headway.testing.servers.process import Process, wait_until

COMMAND = (sys.executable, "-m", "headway.apps.cli")
EVENTS = "/api/v1/events"
BULK = "/api/v1/events/bulk"

DATA: dict[str, dict[str, Any]] = {
    "CarCreated": {"make": "Saab", "model": "900", "year": 1992, "price_cents": 900_000},
    "LoanCreated": {"car_id": "car-1", "principal_cents": 500_000, "term_months": 36},
    "LoanPaymentSubmitted": {"amount_cents": 25_000},
    "CarServiceDone": {"description": "Brakes", "cost_cents": 40_000, "odometer_km": 200_000},
}


def an_event(kind: str = "LoanPaymentSubmitted", **changes: Any) -> dict[str, Any]:
    """An event that is accepted as it is; `changes` replaces or adds fields."""
    entity = "car-1" if kind.startswith("Car") else "loan-1"
    event = {
        "event_type": kind,
        "event_id": "event-1",
        "timestamp": "2026-01-31T12:00:00Z",
        "entity_id": entity,
        "data": dict(DATA[kind]),
    }
    return event | changes


class Ledger:
    """One ledger served inside the test, and a look behind it into its database."""

    def __init__(self, http: httpx.AsyncClient, database: str) -> None:
        self.http = http
        self.database = database

    async def send(self, event: Any, *, key: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.http.post(EVENTS, json=event, headers=headers)

    async def entity(self, entity_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/api/v1/entities/{entity_id}")
        found: dict[str, Any] = answer.json()
        return found

    async def sample(self, name: str, **labels: str) -> float:
        """The value of one metric as /metrics shows it; 0 where it was never counted."""
        wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        for line in (await self.http.get("/metrics")).text.splitlines():
            if line.startswith(f"{name}{{{wanted}}} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask the database itself, past the ledger."""
        if self.database.startswith("sqlite"):
            with contextlib.closing(connect(self.database)) as connection:
                found = [tuple(row) for row in connection.execute(statement)]
                connection.commit()
                return found
        asked = await asyncpg.connect(self.database)
        try:
            return [tuple(row) for row in await asked.fetch(statement)]
        finally:
            await asked.close()

    async def is_empty(self) -> bool:
        """Whether nothing at all is left of what was sent."""
        tables = ("ledger_events", "ledger_entities", "headway_operations")
        left = [await self.rows(f"select 1 from {table}") for table in tables]
        return not any(left)


def connect(url: str) -> sqlite3.Connection:
    return sqlite3.connect(url.removeprefix("sqlite:///"))


@contextlib.asynccontextmanager
async def a_ledger(
    database: str, *, behind: str | None = None, **settings: Any
) -> AsyncIterator[Ledger]:
    """Serve a ledger inside the test; `behind` is its database without a proxy in between."""
    used = LedgerSettings(database_url=database, **{"allowed_hosts": ("ledger",), **settings})
    store = open_store(used)
    app = create_app(store, used, LedgerMetrics(CollectorRegistry()))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    direct = open_store(LedgerSettings(database_url=behind or database))
    await direct.prepare()
    async with (
        direct.opened(),
        httpx.AsyncClient(
            transport=transport,
            base_url="http://ledger",
            headers={"Content-Type": "application/json"},
        ) as http,
    ):
        yield Ledger(http, behind or database)


class ServedLedger:
    """A ledger in processes of its own."""

    def __init__(self, process: Process, port: int, log: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.log = log

    def is_ready(self) -> bool:
        return answers_ok(int(self.url.rpartition(":")[2]), "/health")


@contextlib.contextmanager
def a_server(
    folder: Path,
    database: str,
    *options: str,
    command: Sequence[str] = (*COMMAND, "ledger", "serve"),
    environment: Mapping[str, str] | None = None,
    ready: bool = True,
) -> Iterator[ServedLedger]:
    """Run `headway ledger serve`, or another command that serves, for the block."""
    port = free_port()
    log = folder / f"server-{port}.log"
    process = Process(
        [*command, "--port", str(port), *options],
        log=log,
        # A server that is killed cannot clear up, so its temporary files belong to the test.
        environment={
            "LEDGER_DATABASE_URL": database,
            "TMPDIR": str(folder),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            **(environment or {}),
        },
    )
    served = ServedLedger(process, port, log)
    try:
        if ready:
            assert wait_until(served.is_ready, timedelta(seconds=30)), log.read_text()
        yield served
    finally:
        process.kill()
