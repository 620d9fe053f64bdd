"""Aurora DSQL reports its conflicts at COMMIT, in several shapes; all are retried alike."""

import re

import pytest

from tests.systems.ledger.dsql import SHAPES, commits_tried, raise_at_commit
from tests.systems.ledger.ledgers import a_ledger, an_event

shapes = pytest.mark.parametrize("shape", SHAPES)


@shapes
async def test_a_conflict_at_commit_is_retried_until_the_event_is_stored_once(
    postgres_database: str, shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with a_ledger(postgres_database) as ledger:
        await raise_at_commit(postgres_database, shape, times=2)
        answer = await ledger.send(an_event())
        assert (answer.status_code, answer.json()["already"]) == (201, False)
        assert await commits_tried(postgres_database) == 3
        assert (await ledger.entity("loan-1"))["payments"] == 1
        assert len(await ledger.rows("select * from ledger_events")) == 1
        kind = "LoanPaymentSubmitted"
        assert await ledger.sample("ledger_events_total", event_type=kind, outcome="stored") == 1
    lines = [record for record in caplog.records if record.name.startswith("headway")]
    said = [re.sub(r"[\d.]+s", "SECONDS", record.getMessage()) for record in lines]
    raised = f"store_event raised SerializationError: {SHAPES[shape][1]}"
    assert [re.sub(r"raised \w+", "raised SerializationError", line) for line in said] == [
        f"OC000 transaction conflict detected - retrying: {raised}",
        f"Retrying after SECONDS (attempt 1/5): {raised}",
        f"OC000 transaction conflict detected - retrying: {raised}",
        f"Retrying after SECONDS (attempt 2/5): {raised}",
        "Successfully completed after 3 attempts: store_event",
        "Event stored",
    ]
    for record in lines:
        fields = vars(record)
        assert fields["event_id"] == "event-1"
        assert (fields["event_type"], fields["event_name"]) == (kind, "Loan Payment Submitted")
    assert len({vars(record)["transaction_id"] for record in lines}) == 1
    assert [vars(record)["sqlstate"] for record in lines[:4]] == [SHAPES[shape][0]] * 4


@shapes
async def test_a_conflict_at_every_commit_ends_exhausted(
    postgres_database: str, shape: str
) -> None:
    async with a_ledger(postgres_database, retry_attempts=3) as ledger:
        await raise_at_commit(postgres_database, shape, times=100)
        answer = await ledger.send(an_event())
        assert (answer.status_code, answer.json()["error"]) == (500, "exhausted")
        assert answer.headers["retry-after"] == "1"
        assert await commits_tried(postgres_database) == 3
        assert await ledger.is_empty()
