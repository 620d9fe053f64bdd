"""The description of the API: true, and readable without a network."""

import html
import re
from http import HTTPStatus
from typing import Any

import pytest

from headway.systems.ledger.page import page as write_page
from tests.systems.ledger.ledgers import BULK, DATA, EVENTS, Ledger, an_event

JSON = "application/json"


@pytest.fixture
async def described(sqlite_ledger: Ledger) -> dict[str, Any]:
    found: dict[str, Any] = (await sqlite_ledger.http.get("/openapi.json")).json()
    return found


@pytest.fixture
async def page(sqlite_ledger: Ledger) -> str:
    return (await sqlite_ledger.http.get("/", follow_redirects=True)).text


def test_the_page_needs_nothing_from_elsewhere(page: str) -> None:
    assert all(kind in page for kind in DATA)
    assert "POST /api/v1/events/bulk" in page
    assert "https://" not in page
    assert "<script" not in page


def test_the_page_is_written_for_people(page: str) -> None:
    assert "<h2>Requests</h2>" in page
    assert "<code>already</code> is true" in page
    for raw in ("`", "[\\s\\S]", "Successful Response", "Validation Error"):
        assert raw not in page


def test_the_page_shows_parameters_bodies_and_where_it_was_found(page: str) -> None:
    assert re.search(r"<code>after</code></td><td>query, optional</td>", page)
    assert re.search(r"<code>limit</code></td><td>query, optional</td>", page)
    assert html.escape('"events": [') in page
    assert "curl -i http://ledger/api/v1/events " in page


def test_every_link_on_the_page_leads_somewhere(page: str) -> None:
    links = set(re.findall(r'href="#(\w+)"', page))
    assert links == {*DATA, "NewCar", "NewLoan", "LoanPayment", "CarService", "shapes"}
    assert links <= set(re.findall(r'id="(\w+)"', page))


def test_the_page_cannot_be_made_to_run_what_a_request_says(described: dict[str, Any]) -> None:
    assert "<script" not in write_page(described, "http://x'<script>/")


def test_the_description_has_the_shapes_of_the_events(described: dict[str, Any]) -> None:
    body = described["paths"][EVENTS]["post"]["requestBody"]["content"][JSON]
    shapes = {shape["$ref"].rpartition("/")[2] for shape in body["schema"]["anyOf"]}
    assert shapes == set(DATA)
    payment = described["components"]["schemas"]["LoanPayment"]["properties"]["amount_cents"]
    assert payment["minimum"] == 1


ANSWERS = {
    ("post", EVENTS): "201 400 403 409 413 415 422 500",
    ("get", EVENTS): "200 422 500",
    ("post", BULK): "201 207 400 403 413 415 422",
    ("get", f"{EVENTS}/{{event_id}}"): "200 404 500",
    ("get", "/api/v1/entities"): "200 422 500",
    ("get", "/api/v1/entities/{entity_id}"): "200 404 500",
    ("get", "/api/v1/totals"): "200 500",
    ("get", "/health"): "200 503",
    ("get", "/metrics"): "200",
}


def test_the_description_has_every_answer_with_an_example(described: dict[str, Any]) -> None:
    operations = {
        (method, path): operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    found = {name: " ".join(operation["responses"]) for name, operation in operations.items()}
    assert found == ANSWERS
    for operation in operations.values():
        for answer in operation["responses"].values():
            assert all("example" in content for content in answer["content"].values())


@pytest.mark.parametrize("path", [EVENTS, BULK])
async def test_the_examples_of_bodies_are_answered_as_described(
    sqlite_ledger: Ledger, described: dict[str, Any], path: str
) -> None:
    operation = described["paths"][path]["post"]
    example = operation["requestBody"]["content"][JSON]["example"]
    answer = await sqlite_ledger.http.post(path, json=example)
    assert answer.status_code == HTTPStatus.CREATED
    assert answer.json() == operation["responses"]["201"]["content"][JSON]["example"]


async def test_the_examples_of_looking_have_the_fields_that_are_shown(
    sqlite_ledger: Ledger, described: dict[str, Any]
) -> None:
    await sqlite_ledger.send(an_event("LoanCreated", event_id="loan", entity_id="loan-7"))
    await sqlite_ledger.send(an_event(event_id="pay-0001", entity_id="loan-7"))
    for path in (EVENTS, f"{EVENTS}/{{event_id}}", "/api/v1/entities/{entity_id}"):
        asked = path.format(event_id="pay-0001", entity_id="loan-7")
        shown = (await sqlite_ledger.http.get(f"{asked}?limit=1")).json()
        content = described["paths"][path]["get"]["responses"]["200"]["content"]
        example = content[JSON]["example"]
        if "events" in shown:
            shown, example = shown["events"][0], example["events"][0]
        assert shown.keys() == example.keys()
    totals = (await sqlite_ledger.http.get("/api/v1/totals")).json()
    content = described["paths"]["/api/v1/totals"]["get"]["responses"]["200"]["content"]
    assert totals == content[JSON]["example"]
