"""The description of the API: true, and readable without a network."""

from typing import Any

import pytest

from tests.systems.ledger.ledgers import BULK, EVENTS, Ledger, an_event

JSON = "application/json"


@pytest.fixture
async def described(sqlite_ledger: Ledger) -> dict[str, Any]:
    found: dict[str, Any] = (await sqlite_ledger.http.get("/openapi.json")).json()
    return found["paths"]


@pytest.mark.parametrize("path", [EVENTS, BULK])
async def test_the_examples_of_bodies_are_answered_as_described(
    sqlite_ledger: Ledger, described: dict[str, Any], path: str
) -> None:
    operation = described[path]["post"]
    example = operation["requestBody"]["content"][JSON]["example"]
    answer = await sqlite_ledger.http.post(path, json=example)
    assert answer.status_code == 201
    assert answer.json() == operation["responses"]["201"]["content"][JSON]["example"]


async def test_the_examples_of_looking_have_the_fields_that_are_shown(
    sqlite_ledger: Ledger, described: dict[str, Any]
) -> None:
    await sqlite_ledger.send(an_event("LoanCreated", event_id="loan", entity_id="loan-7"))
    await sqlite_ledger.send(an_event(event_id="pay-0001", entity_id="loan-7"))
    for path in (f"{EVENTS}/{{event_id}}", "/api/v1/entities/{entity_id}", "/api/v1/totals"):
        asked = path.format(event_id="pay-0001", entity_id="loan-7")
        shown = (await sqlite_ledger.http.get(asked)).json()
        example = described[path]["get"]["responses"]["200"]["content"][JSON]["example"]
        assert shown.keys() == example.keys()
