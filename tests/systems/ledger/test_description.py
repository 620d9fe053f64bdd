"""The description of the API: true, and readable without a network."""

from typing import Any

import pytest

from tests.systems.ledger.ledgers import BULK, EVENTS, Ledger

JSON = "application/json"


@pytest.fixture
async def described(sqlite_ledger: Ledger) -> dict[str, Any]:
    found: dict[str, Any] = (await sqlite_ledger.http.get("/openapi.json")).json()["paths"]
    return found


@pytest.mark.parametrize("path", [EVENTS, BULK])
async def test_the_examples_of_bodies_are_answered_as_described(
    sqlite_ledger: Ledger, described: dict[str, Any], path: str
) -> None:
    operation = described[path]["post"]
    example = operation["requestBody"]["content"][JSON]["example"]
    answer = await sqlite_ledger.http.post(path, json=example)
    assert answer.status_code == 201
    assert answer.json() == operation["responses"]["201"]["content"][JSON]["example"]
