"""Screens hide secrets in event data by the rule of the logs; exports keep every byte."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from headway.core import secrets
from tests.cli.offices import Office
from tests.cli.shops import ShopFile

IBAN = "DE02 1203"
EVENT = {
    "bad": "password was 'hunter2', otp=hunter2, session_id=hunter2",
    "login": {"user": "bob", "password": "hunter2", "pin": 4711},
    "links": ["https://bob:hunter2@h/x"],
    "customerIban": IBAN,
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShopFile:
    monkeypatch.setattr(secrets, "_own", ())  # as it was, after the test
    shop = ShopFile(tmp_path)
    shop.fill(EVENT, raw=b"no JSON: token=hunter2")
    return shop


def exported(shop: ShopFile) -> list[Any]:
    return [json.loads(line) for line in shop("failed", "export", "parsing").stdout.splitlines()]


def event_of(letters: list[Any]) -> Any:
    """Give the event that is JSON; the other is none."""
    (event,) = [each["original_event"] for each in letters if each["original_event"]]
    return event


@pytest.mark.parametrize("words", [(), ("--json",), ("--traceback",)])
def test_inspect_hides_secrets(shop: ShopFile, words: tuple[str, ...]) -> None:
    said = shop("failed", "inspect", "parsing", *words).stdout
    assert "hunter2" not in said
    assert "4711" not in said
    assert "bob" in said
    assert IBAN in said
    if words != ("--json",):
        assert "token=***" in said
    else:
        (other,) = [each for each in json.loads(said) if not each["original_event"]]
        assert b64decode(other["original_base64"]) == b"no JSON: token=***"
        assert event_of(json.loads(said))["data"]["login"] == {
            "user": "bob",
            "password": "***",
            "pin": "***",
        }


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_inspect_shows_them_when_it_is_asked_to(shop: ShopFile, words: tuple[str, ...]) -> None:
    said = shop("failed", "inspect", "parsing", "--raw", *words).stdout
    assert '"password": "hunter2"' in said
    if words == ("--json",):
        assert event_of(json.loads(said))["data"] == EVENT


def test_export_keeps_the_original(shop: ShopFile, tmp_path: Path) -> None:
    lines = exported(shop)
    assert event_of(lines)["data"] == EVENT
    done = shop("failed", "export", "parsing", "--output", str(tmp_path / "out.jsonl"))
    assert done.exit_code == 0
    written = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in written] == lines


def test_a_dead_letter_keeps_no_secret_of_its_exception(shop: ShopFile) -> None:
    (letter,) = [each for each in exported(shop) if each.pop("original_event")]
    assert "hunter2" not in json.dumps(letter)
    assert "password was '***', otp=***, session_id=***" in letter["last_error"]


def test_fields_of_the_users_own_are_hidden_too(
    shop: ShopFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_SECRET_FIELDS", "iban, tax-id")
    assert IBAN not in shop("failed", "inspect", "parsing", "--json").stdout
    assert IBAN in shop("failed", "inspect", "parsing", "--json", "--raw").stdout
    shown = json.loads(shop.typed("config", "show", "--json").stdout)
    assert "HEADWAY_SECRET_FIELDS" in shown


def test_a_name_that_cannot_be_one_is_refused_by_its_setting(
    shop: ShopFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_SECRET_FIELDS", "iban|x")
    done = shop("failed", "inspect", "parsing")
    assert done.exit_code != 0
    assert "HEADWAY_SECRET_FIELDS" in str(done.exception) + done.stderr


def test_results_that_wait_are_shown_without_secrets(tmp_path: Path) -> None:
    office = Office(f"sqlite:///{tmp_path}/a.db")
    office.hold("a", 1, 3, payload=b'{"token": "hunter2", "status": "ok"}')
    for words in ((), ("--json",)):
        said = office("explain", "a", "--contents", *words).stdout
        assert "hunter2" not in said
        assert "***" in said
        assert "hunter2" in office("explain", "a", "--contents", "--raw", *words).stdout


def test_the_last_error_of_a_document_is_shown_without_secrets(tmp_path: Path) -> None:
    shop = ShopFile(tmp_path)
    shop.fill({"bad": "x"})
    error = {"type": "ValueError", "message": "password was 'hunter2'"}
    shop.put("messages", "m1", status="failed", attemptCount=3, lastError=error)
    for words in ((), ("--json",)):
        said = shop("documents", "stuck", "messages", *words).stdout
        assert "password was" in said
        assert "hunter2" not in said
