"""`headway` as it is typed."""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from headway.testing.servers.loopback import free_port

COMMAND = (sys.executable, "-m", "headway.apps.cli")


def headway(
    *words: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words],
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", **(environment or {})},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_it_says_its_version() -> None:
    assert headway("--version").stdout == f"headway {version('headway')}\n"


SLOW_TO_LOAD = ("headway.runtime", "headway.adapters.sqlite", "rich.table", "fastapi", "httpx")


@pytest.mark.parametrize("package", SLOW_TO_LOAD)
def test_what_one_command_needs_does_not_slow_down_the_others(package: str) -> None:
    program = "import sys, headway.apps.cli.commands; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "headway.apps.cli.failed" in loaded
    assert [name for name in loaded if f"{name}.".startswith(f"{package}.")] == []


def test_without_words_it_lists_its_commands() -> None:
    said = headway().stdout + headway().stderr
    assert all(name in said for name in ("config", "demo", "ledger"))


def test_the_settings_in_force_are_shown_without_secrets() -> None:
    done = headway(
        "config",
        "show",
        "--json",
        environment={
            "LEDGER_DATABASE_URL": "postgresql://u:s3cret@h/x",
            "RETRY_MAX_ATTEMPTS": "3",
        },
    )
    assert "s3cret" not in done.stdout
    shown = json.loads(done.stdout)
    assert shown["LEDGER_DATABASE_URL"] == "postgresql://u:***@h/x"
    assert (shown["RETRY_MAX_ATTEMPTS"], shown["RETRY_BASE_DELAY_MS"]) == ("3", "250")
    assert (shown["RETRY_MAX_DELAY_SECONDS"], shown["RETRY_TTL_MINUTES"]) == ("60", "30")
    plain = headway("config", "show").stdout.splitlines()
    assert [line.split()[0] for line in plain] == list(shown)


REFUSED = {
    "LEDGER_PORT": "http",
    "LEDGER_DATABASE_URL": "mysql://u:s3cret@h/x",
    "RETRY_MAX_ATTEMPTS": "x",
}


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_a_setting_that_is_refused_is_one_line_and_exit_code_2(name: str, value: str) -> None:
    done = headway("config", "show", environment={name: value})
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"headway: {name}=")
    assert "s3cret" not in done.stderr + done.stdout


def test_invalid_settings_hide_no_other_setting(tmp_path: Path) -> None:
    environment = {
        "HEADWAY_SETTINGS": str(tmp_path / "missing"),
        "HEADWAY_BUSS": "sqlite:///x.db",
        "METRICS_BACKEND": "promotheus",
        "ERROR_REPORTER_TYPE": "sentry",
        "RETRY_MAX_ATTEMPTS": "many",
        "RETRY_TTL_MINUTES": "soon",
        "RETRY_BASE_DELAY_MS": "125",
        "RETRY_JOB_INTERVAL_SECONDS": "often",
        "LEDGER_PORT": "http",
    }
    done = headway("config", "show", "--json", environment=environment)
    assert done.returncode == 2
    shown, usual = json.loads(done.stdout), json.loads(headway("config", "show", "--json").stdout)
    invalid = set(environment) - {"HEADWAY_SETTINGS", "RETRY_BASE_DELAY_MS"}
    assert {name for name, value in shown.items() if value == "(invalid)"} == invalid
    assert shown["RETRY_BASE_DELAY_MS"] == "125"
    others = usual.keys() - environment.keys()
    assert {name: shown[name] for name in others} == {name: usual[name] for name in others}
    said = done.stderr.splitlines()
    assert len(said) == len(invalid) + 1
    assert all(any(name in line for line in said) for name in (*invalid, "HEADWAY_SETTINGS"))


@pytest.mark.parametrize(
    "name", ["HEADWAY_SERVICES", "HEADWAY_ERRORS", "HEADWAY_SETTINGS", "METRICS_BACKEND"]
)
def test_a_url_in_the_wrong_setting_shows_no_password(name: str) -> None:
    done = headway("config", "show", environment={name: "amqp://bob:hunter2@host/shop"})
    assert "hunter2" not in done.stdout + done.stderr


def test_an_address_for_reports_that_cannot_be_used_is_refused_without_its_password() -> None:
    url = "http://bob:hunter2/x@localhost:8095/api/errors"
    done = headway("config", "show", environment={"ERROR_REPORTER_URL": url})
    assert done.returncode == 2
    assert "ERROR_REPORTER_URL=" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_every_setting_of_headway_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "settings.env"
    file.write_text("HEADWAY_ERRORS=errors-of-today.db\n")
    done = headway("config", "show", "--json", environment={"HEADWAY_SETTINGS": str(file)})
    shown = json.loads(done.stdout)
    assert shown["HEADWAY_SETTINGS"] == str(file)
    assert shown["HEADWAY_ERRORS"] == "errors-of-today.db"


COMMANDS = [(), ("config", "show"), ("demo", "ledger"), ("ledger", "serve"), ("ledger", "load")]


@pytest.mark.parametrize("words", COMMANDS)
def test_help_shows_no_flag_as_if_it_took_a_value(words: tuple[str, ...]) -> None:
    said = headway(*words, "--help").stdout
    assert "--help" in said
    assert "bool" not in said


def test_help_names_the_setting_behind_an_option_and_its_default() -> None:
    said = " ".join(headway("ledger", "serve", "--help").stdout.split())
    for default in (
        "LEDGER_HOST, or 127.0.0.1",
        "LEDGER_PORT, or 8080",
        "LEDGER_DATABASE_URL, or sqlite:///headway-ledger.db",
        "LEDGER_RETRY_ATTEMPTS, or 5",
    ):
        assert f"[default: {default}]" in said


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = headway("ledger", "serve", "--port", port, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("headway: LEDGER_HOST='127.0.0.1'")
    assert "Address already in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_load_on_nothing_says_what_to_start() -> None:
    done = headway("ledger", "load", "--url", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 2
    assert "start one with 'headway ledger serve'" in done.stderr


MISSING = {
    "typer": (("--version",), "pip install '/path/to/headway[cli]'"),
    "uvicorn": (("ledger", "serve"), "pip install '/path/to/headway[ledger]'"),
}


@pytest.mark.parametrize("package", MISSING)
def test_a_package_that_is_missing_is_named_with_its_cure(package: str) -> None:
    words, cure = MISSING[package]
    program = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['headway', *{words!r}]; "
        "from headway.apps.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert package in done.stderr
    assert cure in done.stderr
