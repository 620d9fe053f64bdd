"""However much is reported, what is kept and shown of it stays bearable."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from headway.adapters.sqlite.error_book import SqliteErrorBook
from headway.apps.web.application import application
from headway.core.error_report import ErrorReport
from headway.testing.clock import VirtualClock

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
REPORT = {"service": "chunking", "level": "error", "message": "it broke"}


def nested(numbers: int, depth: int = 18) -> Any:
    value: Any = [1] * numbers
    for _ in range(depth):
        value = [value]
    return {"a": value}


@pytest.fixture
def book(tmp_path: Path) -> SqliteErrorBook:
    return SqliteErrorBook(tmp_path / "errors.db")


@pytest.fixture
def client(book: SqliteErrorBook) -> Iterator[TestClient]:
    with TestClient(application(book, VirtualClock(START), hosts=["testserver"])) as client:
        yield client


def post(client: TestClient, **fields: Any) -> httpx.Response:
    return client.post("/api/errors", json={**REPORT, **fields})  # type: ignore[return-value]


def test_a_large_context_is_cut_and_the_report_kept(client: TestClient) -> None:
    assert post(client, context=nested(300_000)).status_code == 201
    (error,) = client.get("/api/errors").json()["errors"]
    assert error["message"] == "it broke"
    (name,) = error["context"]
    assert name == "cut"
    assert error["context"]["cut"].startswith('{"a":[[')
    assert len(json.dumps(error["context"])) < 51_000


def test_a_context_is_cut_after_its_secrets_are_hidden(client: TestClient) -> None:
    post(client, context={"a": "x" * 49_970, "b": "amqp://bob:s3cret-s3cret-s3cret@broker"})
    assert "s3cret" not in client.get("/api/errors").text


def test_what_others_kept_before_makes_no_page_of_any_size(
    client: TestClient, book: SqliteErrorBook
) -> None:
    report = ErrorReport(
        service="s", level="error", message="m" * 900_000, stack_trace="t" * 900_000,
        context=nested(300_000),
    )  # fmt: skip
    for number in range(5):
        book.add(report, f"e-{number}", START)
    page = client.get("/ui").text
    assert len(page) < 5 * 40_000 + 10_000
    assert "more characters, see as JSON" in page
    answer = client.get("/api/errors?limit=1000")
    assert len(answer.content) < 10_000_000
    assert "(cut: see /api/errors/e-4)" in answer.text
    assert len(client.get("/api/errors/e-4").content) > 2_000_000


def test_a_small_report_is_shown_in_whole_however_many_are_asked_for(client: TestClient) -> None:
    post(client, stack_trace="t" * 5_000, context={"a": [1, {"b": 2}]})
    (error,) = client.get("/api/errors?limit=1000").json()["errors"]
    assert error["stack_trace"] == "t" * 5_000
    assert error["context"] == {"a": [1, {"b": 2}]}


def test_names_are_kept_without_secrets(client: TestClient) -> None:
    post(client, service="amqp://u:s3cret@broker", error_type="password=s3cret")
    assert "s3cret" not in client.get("/api/errors").text


@pytest.mark.parametrize("kind", ["Application/JSON", "application/json ; charset=utf-8"])
def test_the_kind_of_content_has_no_case(client: TestClient, kind: str) -> None:
    answer = client.post("/api/errors", content=json.dumps(REPORT), headers={"Content-Type": kind})
    assert answer.status_code == 201
