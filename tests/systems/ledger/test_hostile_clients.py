"""Requests that would cost too much, and requests that pages of other sites make browsers send."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.systems.ledger.ledgers import BULK, EVENTS, Ledger, a_ledger, a_server, an_event

MEGABYTE = 1024 * 1024


def a_bulk(*items: str) -> bytes:
    return f'{{"events":[{",".join(items)}]}}'.encode()


async def test_a_bulk_of_too_many_events_is_refused_whole(sqlite_database: str) -> None:
    async with a_ledger(sqlite_database, max_bulk_events=3) as ledger:
        event = json.dumps(an_event())
        answer = await ledger.http.post(BULK, content=a_bulk(*[event] * 4))
        assert (answer.status_code, answer.json()["error"]) == (413, "too_many")
        assert await ledger.is_empty()
        events = [json.dumps(an_event(event_id=f"e{n}")) for n in range(3)]
        assert (await ledger.http.post(BULK, content=a_bulk(*events))).status_code == 201


def peak(pids: list[int]) -> float:
    """Give the most memory that a process ever had, in bytes."""
    lines = [Path(f"/proc/{pid}/status").read_text().splitlines() for pid in pids]
    found = [line.split() for each in lines for line in each if line.startswith("VmHWM")]
    return max(int(each[1]) * 1024 for each in found)


async def test_millions_of_items_cost_neither_memory_nor_the_time_of_others(
    sqlite_database: str, tmp_path: Path
) -> None:
    body = a_bulk(*["{}"] * (5 * MEGABYTE // 3 - 10))
    with a_server(tmp_path, sqlite_database) as served:
        before = peak(served.process.tree())
        async with httpx.AsyncClient(base_url=served.url, timeout=60) as http:
            headers = {"Content-Type": "application/json"}
            bulks = [
                asyncio.create_task(http.post(BULK, content=body, headers=headers))
                for _ in range(4)
            ]
            while not all(bulk.done() for bulk in bulks):
                assert (await http.get("/health", timeout=5)).status_code == 200
            assert {(await bulk).status_code for bulk in bulks} == {413}
        assert peak(served.process.tree()) - before < 100 * MEGABYTE


FOREIGN: list[tuple[dict[str, str], int]] = [
    ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ({"Content-Type": ""}, 415),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://ledger:81"}, 403),
    ({"Host": "evil.example"}, 421),
    ({"Host": "ledger.evil.example:80", "Origin": "http://ledger.evil.example:80"}, 421),
    ({"Host": "127.0.0.1.evil.example"}, 421),
    ({"Host": "[::1"}, 421),
]


@pytest.mark.parametrize(("headers", "status"), FOREIGN, ids=str)
@pytest.mark.parametrize("path", [EVENTS, BULK])
async def test_a_page_of_another_site_cannot_write_or_read(
    sqlite_ledger: Ledger, path: str, headers: dict[str, str], status: int
) -> None:
    body = json.dumps(an_event() if path == EVENTS else {"events": [an_event()]})
    given = {"Content-Type": "application/json", **headers}
    answer = await sqlite_ledger.http.post(path, content=body, headers=given)
    assert answer.status_code == status
    if status == 421:
        for read in ("/api/v1/events", "/metrics", "/docs"):
            assert (await sqlite_ledger.http.get(read, headers=headers)).status_code == 421
    assert await sqlite_ledger.is_empty()


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8080"},
        {"Host": "[::1]:8080"},
        {"Host": "192.168.7.7"},
        {"Host": "LOCALHOST:8080"},
        {"Host": "ledger:8080", "Origin": "http://ledger:8080"},
        {"Host": "ledger", "Origin": "https://ledger"},
        {"Content-Type": "Application/JSON; charset=utf-8"},
    ],
    ids=str,
)
async def test_own_clients_write_as_before(sqlite_ledger: Ledger, headers: dict[str, str]) -> None:
    given = {"Content-Type": "application/json", **headers}
    answer = await sqlite_ledger.http.post(EVENTS, content=json.dumps(an_event()), headers=given)
    assert answer.status_code == 201
