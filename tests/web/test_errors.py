"""The page of errors and its API, through their front door."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from headway import ConfigurationError
from headway.adapters.reporting.http import HttpReporter
from headway.adapters.sqlite.error_book import SqliteErrorBook
from headway.apps.web.application import application
from headway.testing.clock import VirtualClock

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
REPORT = {"service": "chunking", "level": "error", "message": "it broke"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "errors.db"


def door(file: Path, clock: VirtualClock, *, most: int = 10_000) -> TestClient:
    book = SqliteErrorBook(file, most=most)
    return TestClient(application(book, clock, hosts=["testserver"]))


@pytest.fixture
def client(file: Path, clock: VirtualClock) -> Iterator[TestClient]:
    with door(file, clock) as client:
        yield client


def post(client: TestClient, **fields: Any) -> httpx.Response:
    return client.post("/api/errors", json={**REPORT, **fields})  # type: ignore[return-value]


def test_a_report_is_kept_and_given_back(client: TestClient) -> None:
    answer = post(client, error_type="KeyError", stack_trace="Traceback", context={"n": 1})
    assert answer.status_code == 201
    assert answer.json()["status"] == "ok"
    (error,) = client.get("/api/errors").json()["errors"]
    assert error == {
        "error_id": answer.json()["error_id"],
        "timestamp": "2026-11-16T09:00:00Z",
        **REPORT,
        "error_type": "KeyError",
        "stack_trace": "Traceback",
        "context": {"n": 1},
        "outcome": None,
    }
    assert client.get(f"/api/errors/{error['error_id']}").json() == error


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "truncated"),
        (b"[]", "object"),
        (b"{}", "service"),
        (json.dumps({**REPORT, "level": "loud"}).encode(), "loud"),
        (json.dumps({**REPORT, "message": ""}).encode(), "message"),
        (json.dumps({**REPORT, "service": "s" * 201}).encode(), "service"),
        (json.dumps({**REPORT, "context": [1]}).encode(), "context"),
        (json.dumps({**REPORT, "traceback": "t"}).encode(), "there are service, level, message"),
        (json.dumps({**REPORT, "stacktrace": "t"}).encode(), "did you mean stack_trace?"),
        (b'{"service": "\xff"}', "utf-8"),
        (b'{"context": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001, "recursion"),
    ],
    ids=[
        *("cut", "list", "empty", "level", "message", "long", "context", "unknown", "misspelt"),
        *("bytes", "deep"),
    ],
)
def test_a_bad_report_is_refused(client: TestClient, body: bytes, why: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/errors", content=body, headers=headers)
    assert answer.status_code == 400
    assert why in answer.json()["error"].lower()
    assert client.get("/api/stats").json()["total_errors"] == 0


def test_a_form_of_another_site_is_refused(client: TestClient) -> None:
    answer = client.post("/api/errors", content=json.dumps(REPORT))
    assert answer.status_code == 415


def test_a_huge_report_is_refused(client: TestClient) -> None:
    assert post(client, stack_trace="x" * 1_000_001).status_code == 413


def test_long_texts_are_cut(client: TestClient) -> None:
    post(client, message="m" * 20_000)
    (error,) = client.get("/api/errors").json()["errors"]
    assert len(error["message"]) < 10_100
    assert error["message"].endswith("(cut)")


def test_passwords_are_hidden(client: TestClient) -> None:
    post(
        client,
        message="cannot reach amqp://user:s3cret@broker",
        stack_trace="password='s3cret'",
        context={"password": "a s3cret", "inner": [{"api_key": "s3cret", "n": 1}]},
    )
    post(client, message="the service said: Bearer s3cret1, Basic czNjcmV0OnMzY3JldA==")
    shown = client.get("/api/errors").text + client.get("/ui").text
    assert "s3cret" not in shown
    assert "czNj" not in shown
    _, error = client.get("/api/errors").json()["errors"]
    assert error["context"]["inner"][0]["n"] == 1


def test_they_are_found_by_what_they_say(client: TestClient, clock: VirtualClock) -> None:
    for number in range(6):
        post(
            client,
            service="parsing" if number % 2 else "chunking",
            level="critical" if number == 5 else "error",
            error_type="KeyError" if number < 3 else None,
            message=str(number),
        )
        clock.sleep(timedelta(seconds=1))

    def messages(query: str) -> list[str]:
        return [each["message"] for each in client.get(f"/api/errors?{query}").json()["errors"]]

    assert messages("") == ["5", "4", "3", "2", "1", "0"]
    assert messages("service=parsing") == ["5", "3", "1"]
    assert messages("level=critical") == ["5"]
    assert messages("error_type=KeyError&service=chunking") == ["2", "0"]
    assert messages("limit=2&offset=1") == ["4", "3"]
    assert client.get("/api/stats").json() == {
        "total_errors": 6,
        "by_service": {"chunking": 3, "parsing": 3},
        "by_level": {"error": 5, "critical": 1},
        "by_type": {"KeyError": 3, "unknown": 3},
        "by_outcome": {"unknown": 6},
    }
    assert client.get("/api/errors?service=parsing&limit=1").json()["total"] == 3


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "offset=-1", "level=loud"])
def test_a_bad_question_is_refused_by_name(client: TestClient, query: str) -> None:
    answer = client.get(f"/api/errors?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["error"]
    assert client.get(f"/ui?{query}").status_code == 400


@pytest.mark.parametrize(
    ("path", "cure"),
    [
        ("/api/errors?sevice=x", "did you mean service?"),
        ("/api/errors?page=2", "there are service, level, error_type, outcome, limit, offset"),
        ("/api/stats?service=x", "nothing can be asked for here"),
        ("/ui?limit=5", "there are service, level, error_type, outcome, offset"),
    ],
)
def test_a_question_with_an_unknown_name_is_refused(
    client: TestClient, path: str, cure: str
) -> None:
    """Else it would be answered as if the name were not there."""
    answer = client.get(path)
    assert answer.status_code == 400
    assert cure in answer.text


def test_a_browser_is_refused_in_a_page(client: TestClient) -> None:
    answer = client.get("/ui?offset=<b>")
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/html")
    assert "offset=&#39;&lt;b&gt;&#39; is not accepted" in answer.text
    assert 'href="ui"' in answer.text


def test_one_that_is_not_there(client: TestClient) -> None:
    assert client.get("/api/errors/nothing").status_code == 404


def test_the_oldest_go_when_there_are_too_many(file: Path, clock: VirtualClock) -> None:
    with door(file, clock, most=3) as client:
        for number in range(5):
            post(client, message=str(number))
        kept = client.get("/api/errors").json()
    assert [each["message"] for each in kept["errors"]] == ["4", "3", "2"]
    assert kept["total"] == 3


def test_they_are_there_after_a_restart(file: Path, clock: VirtualClock) -> None:
    with door(file, clock) as client:
        post(client)
    with door(file, clock) as client:
        assert client.get("/api/stats").json()["total_errors"] == 1


def test_they_are_counted_again_only_when_there_are_others(file: Path, clock: VirtualClock) -> None:
    book = SqliteErrorBook(file)
    counts: list[str] = []
    book._file.set_trace_callback(lambda said: counts.extend([said] * ("group by" in said)))
    with TestClient(application(book, clock, hosts=["testserver"])) as client:
        for path in ("/", "/ui", "/ui?level=error", "/api/stats"):
            assert client.get(path).status_code == 200
        assert len(counts) == 4, "by level, by service, by type and by outcome"
        post(client)
        assert client.get("/api/stats").json()["total_errors"] == 1
        with door(file, clock) as another:
            post(another)
        assert client.get("/api/stats").json()["total_errors"] == 2
        assert len(counts) == 12


def test_many_at_once(client: TestClient) -> None:
    threads = [threading.Thread(target=post, args=(client,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("/api/stats").json()["total_errors"] == 20


def test_the_page_escapes_what_comes_from_outside(client: TestClient) -> None:
    script = "<script>alert(1)</script>"
    post(client, message=script, service=script, error_type=script, context={script: script})
    page = client.get("/ui")
    assert page.status_code == 200
    assert script not in page.text
    assert "&lt;script&gt;" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_the_page_leads_through_all_of_them(client: TestClient) -> None:
    for number in range(120):
        post(client, message=f"number-{number}.")
    first = client.get("/ui").text
    assert "number-119." in first
    assert "number-69." not in first
    assert "?offset=50" in first
    last = client.get("/ui?offset=100").text
    assert "number-0." in last
    assert "101 to 120 of 120" in last


def test_an_empty_page_says_how_errors_come(client: TestClient) -> None:
    assert "ERROR_REPORTER_TYPE=http" in client.get("/ui").text


def test_health_for_machines_and_the_page_for_people(client: TestClient) -> None:
    assert client.get("/").json() == {"status": "ok", "total_errors": 0}
    sent = client.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert sent.headers["location"] == "ui"


def test_another_host_is_refused(client: TestClient) -> None:
    """A foreign site whose name leads to this machine must not read the errors."""
    assert client.get("/api/errors", headers={"Host": "evil.example"}).status_code == 421


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"HEADWAY_ERRORS=.*nowhere.*write"):
        SqliteErrorBook(tmp_path / "nowhere" / "errors.db")


def test_a_reporter_that_nobody_hears_says_so_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = HttpReporter(clock, "http://127.0.0.1:9/api/errors")
    for _ in range(3):
        reporter.report(ValueError("no"), {})
        clock.advance(timedelta(minutes=2))
    assert reporter.unsent == 3
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "headway ui" in record.getMessage()


def test_an_address_that_is_none_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(ConfigurationError, match="ERROR_REPORTER_URL='file:///etc'"):
        HttpReporter(clock, "file:///etc")


def report(client: TestClient, event: str, outcome: str, service: str = "chunking") -> None:
    answer = post(client, service=service, outcome=outcome, context={"idempotency_key": event})
    assert answer.status_code == 201


def outcomes(client: TestClient, **asked: str) -> list[str]:
    found = client.get("/api/errors", params=asked).json()["errors"]
    return [each["outcome"] for each in found]


def test_the_end_of_an_event_settles_its_earlier_reports(client: TestClient) -> None:
    for event in ("a", "a", "b", "c"):
        report(client, event, "retrying")
    report(client, "a", "retrying", service="another")
    report(client, "a", "recovered")
    report(client, "b", "final")
    assert outcomes(client) == [
        *("final", "recovered", "retrying", "retrying"),
        *("final", "recovered", "recovered"),
    ]
    assert outcomes(client, outcome="final") == ["final"] * 2
    assert client.get("/api/stats").json()["by_outcome"] == {
        "recovered": 3,
        "final": 2,
        "retrying": 2,
    }
    page = client.get("/ui?outcome=recovered").text
    assert page.count("<span>recovered</span>") >= 3
    assert client.get("/ui?outcome=lost").status_code == 400
