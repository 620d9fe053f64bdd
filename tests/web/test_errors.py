"""The page of errors and its API."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headway.testing.clock import VirtualClock
from tests.web.pages import REPORT, START, keep, page, post

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "errors.db"


@pytest.fixture
def client(file: Path, clock: VirtualClock) -> Iterator[TestClient]:
    with page(file, clock) as client:
        yield client


def errors(client: TestClient, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/api/errors?{query}").json()["errors"]
    return found


def total(client: TestClient) -> int:
    return int(client.get("/api/stats").json()["total_errors"])


def test_a_report_is_kept_and_given_back(client: TestClient, file: Path) -> None:
    given = {"stack_trace": "t" * 5_000, "context": {"a": [1, {"b": 2}]}, "error_type": "KeyError"}
    answer = post(client, **given)
    assert (answer.status_code, answer.json()["status"]) == (201, "ok")
    expected = {
        "error_id": answer.json()["error_id"],
        "timestamp": "2026-11-16T09:00:00Z",
        "outcome": None,
        **REPORT,
        **given,
    }
    (error,) = errors(client, "limit=1000")
    assert error == expected
    assert client.get(f"/api/errors/{error['error_id']}").json() == error
    with page(file) as after_a_restart:
        assert errors(after_a_restart) == [error]
    assert client.get("/api/errors/nothing").status_code == 404


DEEP = b'{"context": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "truncated"),
        (b"[]", "object"),
        (b"{}", "service"),
        ({"level": "loud"}, "loud"),
        ({"message": ""}, "message"),
        ({"service": "s" * 201}, "service"),
        ({"context": [1]}, "context"),
        ({"traceback": "t"}, "service, level, message"),
        ({"stacktrace": "t"}, "stack_trace?"),
        (b'{"service": "\xff"}', "utf-8"),
        (DEEP, "recursion"),
    ],
    ids=str,
)
def test_a_bad_report_is_refused(client: TestClient, body: Any, why: str) -> None:
    sent = body if isinstance(body, bytes) else json.dumps({**REPORT, **body}).encode()
    answer = client.post("/api/errors", content=sent, headers=JSON)
    assert answer.status_code == 400
    assert why in answer.json()["error"].lower()
    assert total(client) == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "Application/JSON"}, 201),
        ({"Content-Type": "application/json ; charset=utf-8"}, 201),
        ({"Origin": "http://localhost:8081", "Host": "localhost:8081"}, 201),
        ({"Host": "127.0.0.1:8081"}, 201),
    ],
    ids=str,
)
def test_a_page_of_another_site_can_neither_report_nor_read(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    given = {**JSON, **headers}
    answer = client.post("/api/errors", content=json.dumps(REPORT), headers=given)
    assert answer.status_code == status
    assert total(client) == (status == 201)
    if status == 421:
        assert client.get("/api/errors", headers=headers).status_code == 421


def test_secrets_are_hidden_before_anything_is_cut(client: TestClient) -> None:
    post(
        client,
        service="amqp://u:s3cret@broker",
        error_type="password=s3cret",
        message="cannot reach amqp://user:s3cret@broker",
        stack_trace="password='s3cret'",
        context={"password": "a s3cret", "inner": [{"api_key": "s3cret", "n": 1}]},
    )
    (error,) = errors(client)
    assert error["context"]["inner"][0]["n"] == 1
    post(client, message="the service said: Bearer s3cret1, Basic czNjcmV0OnMzY3JldA==")
    post(client, context={"a": "x" * 49_970, "b": "amqp://bob:s3cret-s3cret-s3cret@broker"})
    shown = client.get("/api/errors").text + client.get("/ui").text
    assert "s3cret" not in shown
    assert "czNj" not in shown


def nested(numbers: int) -> Any:
    value: Any = [1] * numbers
    for _ in range(18):
        value = [value]
    return {"a": value}


def test_what_is_too_long_is_cut_or_refused_and_the_report_kept(client: TestClient) -> None:
    assert post(client, stack_trace="x" * 1_000_001).status_code == 413
    assert post(client, message="m" * 20_000).status_code == 201
    (error,) = errors(client)
    assert len(error["message"]) < 10_100
    assert post(client, context=nested(300_000)).status_code == 201
    error, _ = errors(client)
    assert error["message"] == "it broke"
    assert error["context"]["cut"].startswith('{"a":[[')
    assert len(json.dumps(error["context"])) < 51_000


def test_what_others_kept_before_makes_no_page_of_any_size(client: TestClient, file: Path) -> None:
    keep(*(file, 5), message="m" * 900_000, stack_trace="t" * 900_000, context=nested(300_000))
    assert len(client.get("/ui").text) < 5 * 40_000 + 10_000
    answer = client.get("/api/errors?limit=1000")
    assert len(answer.content) < 10_000_000
    assert "/api/errors/e-4" in answer.text
    assert len(client.get("/api/errors/e-4").content) > 2_000_000


def test_errors_are_found_by_their_fields(client: TestClient, clock: VirtualClock) -> None:
    for number in range(6):
        post(
            client,
            service="parsing" if number % 2 else "chunking",
            level="critical" if number == 5 else "error",
            error_type="KeyError" if number < 3 else None,
            message=str(number),
        )
        clock.sleep(timedelta(seconds=1))
    for query, expected in {
        "": "543210",
        "service=parsing": "531",
        "level=critical": "5",
        "error_type=KeyError&service=chunking": "20",
        "limit=2&offset=1": "43",
    }.items():
        assert [each["message"] for each in errors(client, query)] == list(expected)
    assert client.get("/api/stats").json() == {
        "total_errors": 6,
        "by_service": {"chunking": 3, "parsing": 3},
        "by_level": {"error": 5, "critical": 1},
        "by_type": {"KeyError": 3, "unknown": 3},
        "by_outcome": {"unknown": 6},
    }
    assert client.get("/api/errors?service=parsing&limit=1").json()["total"] == 3


@pytest.mark.parametrize(
    ("path", "named"),
    [
        *(
            (f"{place}?{query}", query.partition("=")[0])
            for place in ("/api/errors", "/ui")
            for query in ("limit=0", "limit=1001", "limit=x", "offset=-1", "level=loud")
        ),
        ("/api/errors?sevice=x", "service?"),
        ("/api/errors?page=2", "service, level, error_type, outcome, limit, offset"),
        ("/api/stats?service=x", "nothing"),
        ("/ui?limit=5", "service, level, error_type, outcome, offset"),
        ("/ui?outcome=lost", "outcome"),
        ("/ui?offset=<b>", "&lt;b&gt;"),
    ],
)
def test_a_bad_question_is_refused_by_name(client: TestClient, path: str, named: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 400
    assert named in answer.text
    html = answer.headers["content-type"].startswith("text/html")
    assert html is path.startswith("/ui")


def test_the_oldest_go_when_there_are_too_many(file: Path) -> None:
    with page(file, most=3) as client:
        for number in range(5):
            post(client, message=str(number))
        assert [each["message"] for each in errors(client)] == ["4", "3", "2"]
        assert total(client) == 3


def test_reports_of_many_threads_and_of_another_process_are_counted(
    client: TestClient, file: Path
) -> None:
    threads = [threading.Thread(target=post, args=(client,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total(client) == 20
    with page(file) as another:
        post(another)
    assert total(client) == 21


def test_the_page_escapes_what_comes_from_outside(client: TestClient) -> None:
    script = "<script>alert(1)</script>"
    post(client, message=script, service=script, error_type=script, context={script: script})
    shown = client.get("/ui")
    assert shown.status_code == 200
    assert script not in shown.text
    assert "&lt;script&gt;" in shown.text
    assert "default-src 'none'" in shown.headers["content-security-policy"]


def test_the_page_leads_through_all_of_them(client: TestClient) -> None:
    assert "ERROR_REPORTER_TYPE=http" in client.get("/ui").text  # while there are none
    for number in range(120):
        post(client, message=f"number-{number}.")
    first = client.get("/ui").text
    assert "number-119." in first
    assert "number-69." not in first
    assert "?offset=50" in first
    last = client.get("/ui?offset=100").text
    assert "number-0." in last
    assert "101 to 120 of 120" in last


def test_health_for_machines_and_the_page_for_people(client: TestClient) -> None:
    assert client.get("/").json() == {"status": "ok", "total_errors": 0}
    sent = client.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert sent.headers["location"] == "ui"


def test_the_end_of_an_event_settles_its_earlier_reports(client: TestClient) -> None:
    for event, outcome, service in (
        *((event, "retrying", "chunking") for event in ("a", "a", "b", "c")),
        ("a", "retrying", "another"),
        ("a", "recovered", "chunking"),
        ("b", "final", "chunking"),
    ):
        context = {"idempotency_key": event}
        answer = post(client, service=service, outcome=outcome, context=context)
        assert answer.status_code == 201
    assert [each["outcome"] for each in errors(client)] == [
        *("final", "recovered", "retrying", "retrying"),
        *("final", "recovered", "recovered"),
    ]
    assert len(errors(client, "outcome=final")) == 2
    counts = {"recovered": 3, "final": 2, "retrying": 2}
    assert client.get("/api/stats").json()["by_outcome"] == counts
    assert client.get("/ui?outcome=recovered").status_code == 200
