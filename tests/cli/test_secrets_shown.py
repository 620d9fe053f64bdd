"""No command shows a secret: of URLs, of event data, of errors. Exports keep every byte."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.cli.offices import Office
from tests.cli.shops import ShopFile, typed
from tests.cli.test_command import headway

PASSWORDS = ("a hunter2", "a'hunter2", 'a"hunter2', "a@hunter2", "a#hunter2", "%40hunter2")
USUAL = "postgresql://bob:hunter2@127.0.0.1:1/shop"
URLS = [
    *(f"amqp://bob:{each}@127.0.0.1:1/shop" for each in PASSWORDS),
    *(f"{scheme}://bob:hunter2@127.0.0.1:1/shop" for scheme in ("postgresql", "mongodb")),
    "redis://:hunter2@127.0.0.1:1/0",
    "amqp:/bob:hunter2@h",
    "amqp//bob:hunter2@h",
    "bob:hunter2@h",
    "hunter2:bob@h",
    "amqp://bob:1/hunter2@h",
    "amqp://bob:hunter2",
    "amqp://bob@hunter2@h",
]
SETTINGS = (
    *("HEADWAY_BUS", "HEADWAY_STORE", "HEADWAY_SEQUENCES", "ERROR_REPORTER_URL"),
    *("LEDGER_DATABASE_URL", "UPTIME_SEQUENCES", "UPTIME_CELERY_BROKER", "CONSENSUS_VECTORS"),
    "PUSHGATEWAY_URL",
)
NO_URLS = ("HEADWAY_SERVICES", "HEADWAY_ERRORS", "METRICS_BACKEND")


def said(*words: str, folder: Path, environment: dict[str, str]) -> str:
    done = typed(*words, folder=folder, environment=environment)
    return done.stdout + done.stderr


@pytest.mark.parametrize("url", URLS)
def test_no_url_is_shown_with_its_password(url: str, tmp_path: Path) -> None:
    usual = {"HEADWAY_BUS": "amqp://127.0.0.1:1", "PUSHGATEWAY_URL": "http://127.0.0.1:1"}
    for name in (*SETTINGS, "HEADWAY_SETTINGS", *(NO_URLS if url == USUAL else ())):
        given = {"METRICS_BACKEND": "prometheus_pushgateway", **usual, name: url}
        shown = said("config", "show", folder=tmp_path, environment=given)
        assert name in shown
        assert "hunter2" not in shown
    for given, option in (({"HEADWAY_BUS": url}, ()), ({}, ("--bus", url))):
        shown = said("publish", "A", "{}", *option, folder=tmp_path, environment=given)
        assert "HEADWAY_BUS" in shown or "--bus" in shown
        assert "hunter2" not in shown


IBAN = "DE02 1203"
EVENT = {
    "bad": "password was 'hunter2', otp=hunter2, session_id=hunter2",
    "login": {"user": "bob", "password": "hunter2", "pin": 4711},
    "links": ["https://bob:hunter2@h/x"],
    "customerIban": IBAN,
}


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    shop = ShopFile(tmp_path)
    shop.fill(EVENT, raw=b"no JSON: token=hunter2")
    return shop


def event_of(dead_letters: list[Any]) -> Any:
    """Give the event that is JSON; the other is none."""
    (event,) = [each["original_event"] for each in dead_letters if each["original_event"]]
    return event


@pytest.mark.parametrize("option", ["", "--json", "--traceback"])
def test_inspect_hides_secrets_unless_it_is_told_not_to(shop: ShopFile, option: str) -> None:
    words = ("failed", "inspect", "parsing", *([option] if option else ()))
    shown = shop(*words).stdout
    assert "hunter2" not in shown
    assert "4711" not in shown
    assert IBAN in shown
    if option == "--json":
        (other,) = [each for each in json.loads(shown) if not each["original_event"]]
        assert b64decode(other["original_base64"]) == b"no JSON: token=***"
        login = {"user": "bob", "password": "***", "pin": "***"}
        assert event_of(json.loads(shown))["data"]["login"] == login
        assert event_of(json.loads(shop(*words, "--raw").stdout))["data"] == EVENT
    else:
        assert "token=***" in shown
        assert '"password": "hunter2"' in shop(*words, "--raw").stdout


def test_export_keeps_the_original_and_no_secret_of_an_exception(shop: ShopFile) -> None:
    lines = [json.loads(line) for line in shop("failed", "export", "parsing").stdout.splitlines()]
    assert event_of(lines)["data"] == EVENT
    (dead_letter,) = [each for each in lines if each.pop("original_event")]
    assert "hunter2" not in json.dumps(dead_letter)
    assert "password was '***', otp=***, session_id=***" in dead_letter["last_error"]


def test_fields_of_the_users_own_are_hidden_too(shop: ShopFile) -> None:
    words = ("failed", "inspect", "parsing", "--json")
    own = {"HEADWAY_SECRET_FIELDS": "iban, tax-id"}  # in processes of their own: it stays in force
    assert IBAN not in headway(*words, folder=shop.folder, environment=own).stdout
    assert IBAN in headway(*words, "--raw", folder=shop.folder, environment=own).stdout
    refused = typed(*words, folder=shop.folder, environment={"HEADWAY_SECRET_FIELDS": "iban|x"})
    assert (refused.returncode, "HEADWAY_SECRET_FIELDS" in refused.stderr) == (2, True)


def test_results_and_documents_are_shown_without_secrets(tmp_path: Path) -> None:
    shop, office = ShopFile(tmp_path), Office(f"sqlite:///{tmp_path}/headway.db")
    shop.work()
    office.hold("a", 1, 3, payload=b'{"token": "hunter2", "status": "ok"}')
    error = {"type": "ValueError", "message": "password was 'hunter2'"}
    shop.put("messages", "m1", status="failed", attemptCount=3, lastError=error)
    for option in ((), ("--json",)):
        shown = office("explain", "a", "--contents", *option).stdout
        assert "***" in shown
        assert "hunter2" not in shown
        assert "hunter2" in office("explain", "a", "--contents", "--raw", *option).stdout
        shown = shop("documents", "stuck", "messages", *option).stdout
        assert "password was" in shown
        assert "hunter2" not in shown
