"""Load from many clients on few entities: the books are exact, and retry stores what was lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.systems.ledger.load.plan import four_types, hot_run
from headway.systems.ledger.load.run import Report, run_load
from tests.systems.ledger.ledgers import a_server

ENOUGH_AT_ONCE = 0.95


async def test_four_types_times_five_are_all_stored(database: str, tmp_path: Path) -> None:
    with a_server(tmp_path, database) as server:
        report = await run_load(server.url, four_types(5), clients=20, honour_retry_after=True)
    assert report.faults == ()
    assert (report.sent, report.stored) == (20, 20)


async def on_postgresql(
    database: str, folder: Path, *, attempts: int, patient: bool, events: int, clients: int
) -> Report:
    """Put load on two processes; a patient client honours Retry-After."""
    with a_server(folder, database, "--workers", "2", "--attempts", str(attempts)) as server:
        report = await run_load(
            server.url,
            hot_run(events=events, entities=10),
            clients=clients,
            honour_retry_after=patient,
        )
    assert report.faults == ()
    return report


async def test_serializable_transactions_of_two_processes_are_stored_by_retry(
    postgres_database: str, tmp_path: Path
) -> None:
    report = await on_postgresql(
        postgres_database, tmp_path, attempts=5, patient=True, events=150, clients=20
    )
    assert report.conflicts > 0
    assert report.stored == report.sent


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_four_types_times_five_are_all_stored_at_once_three_times_running(
    postgres_database: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with a_server(tmp_path, postgres_database, "--workers", "2") as server:
        for _ in range(3):
            report = await run_load(server.url, four_types(5), clients=20)
            assert report.faults == ()
            record_property(
                "shown", f"{report.stored} of 20 stored at once, {report.conflicts} conflicts"
            )
            assert report.stored == 20


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_fifty_clients_send_a_thousand_events_to_ten_hot_entities(
    postgres_database: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    reports = {
        name: await on_postgresql(
            postgres_database,
            tmp_path,
            attempts=attempts,
            patient=patient,
            events=1000,
            clients=50,
        )
        for name, attempts, patient in (
            ("off", 1, False),
            ("on", 5, False),
            ("on, Retry-After honoured", 5, True),
        )
    }
    for name, report in reports.items():
        record_property(
            "shown",
            f"retry {name}: {report.at_once_rate:.1%} stored at once, {report.stored} of "
            f"{report.sent} in the end, {report.conflicts} conflicts, books exact",
        )
    off, on, patient = reports.values()
    assert off.conflicts == off.sent - off.stored > 0
    assert on.at_once_rate >= ENOUGH_AT_ONCE
    assert patient.stored == patient.sent
