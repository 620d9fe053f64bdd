"""`headway` as it is typed."""

import json
import re
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
    assert re.match(f"headway: (Invalid )?{name}[= ]", done.stderr)
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
    assert done.returncode == 3
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


def shown_by(environment: Mapping[str, str], folder: Path | None = None) -> dict[str, str]:
    done = headway("config", "show", "--json", environment=environment, folder=folder)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_a_good_bus_is_not_called_invalid_because_its_store_is() -> None:
    environment = {"HEADWAY_BUS": "amqp://me:s3cret@broker", "HEADWAY_STORE": "mysql://h/x"}
    done = headway("config", "show", "--json", environment=environment)
    shown = json.loads(done.stdout)
    assert done.returncode == 2
    assert (shown["HEADWAY_BUS"], shown["HEADWAY_STORE"]) == ("amqp://me:***@broker", "(invalid)")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "invalid"),
    [
        ({"RABBITMQ_HOST": "broker", "RABBITMQ_PORT": "amqp"}, "HEADWAY_BUS"),
        ({"RABBITMQ_HOST": "amqp://broker"}, "HEADWAY_BUS"),
        ({"HEADWAY_BUS": "kafka://broker"}, "HEADWAY_BUS"),
        (
            {"HEADWAY_BUS": "amqp://broker", "MONGODB_HOST": "db", "MONGODB_DATABASE": "a.b"},
            "HEADWAY_STORE",
        ),
    ],
)
def test_no_default_is_shown_in_place_of_what_is_invalid(
    given: dict[str, str], invalid: str
) -> None:
    done = headway("config", "show", "--json", environment=given)
    shown = json.loads(done.stdout)
    assert done.returncode == 2
    assert shown[invalid] == shown["HEADWAY_SEQUENCES"] == "(invalid)"
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "given", "invalid"),
    [
        (("ui", "--port", "0"), {"HEADWAY_UI_TOKEN": "short"}, "HEADWAY_UI_TOKEN"),
        (("order", "status"), {"HEADWAY_SEQUENCES": "kafka://h"}, "HEADWAY_SEQUENCES"),
        (("sweep",), {"HEADWAY_SERVICES": "a:b,c:d"}, "HEADWAY_SERVICES"),
        (("ui", "--port", "0"), {"HEADWAY_LOG_LEVEL": "loud"}, "HEADWAY_LOG_LEVEL"),
        (
            ("sweep", "shop"),
            {"METRICS_BACKEND": "prometheus_pushgateway", "PUSHGATEWAY_URL": "gateway:9091"},
            "PUSHGATEWAY_URL",
        ),
    ],
)
def test_what_a_command_refuses_is_invalid_by_config_show(
    words: tuple[str, ...], given: dict[str, str], invalid: str
) -> None:
    refused = headway(*words, environment=given)
    done = headway("config", "show", "--json", environment=given)
    assert (refused.returncode, done.returncode) == (2, 2)
    assert invalid in refused.stderr
    assert done.stderr.partition(". ")[0] == refused.stderr.partition(". ")[0]
    shown = json.loads(done.stdout)
    assert [name for name, value in shown.items() if value == "(invalid)"] == [invalid]
    others = given.keys() - {invalid}
    assert {name: shown[name] for name in others} == {name: given[name] for name in others}


def test_a_default_file_that_is_missing_blames_no_setting(tmp_path: Path) -> None:
    done = headway("failed", "list", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"headway: There is no {tmp_path / 'headway.db'}, the file that ")
    assert "Is this the right folder?" in done.stderr
    named = {"HEADWAY_BUS": "sqlite:///headway.db"}
    done = headway("failed", "list", folder=tmp_path, environment=named)
    assert done.stderr.startswith("headway: Invalid HEADWAY_BUS 'sqlite:///headway.db': there is ")


def test_a_sweep_without_services_says_which_setting_was_meant() -> None:
    done = headway("sweep", environment={"HEADWAY_SERVICE": "shop"})
    assert done.returncode == 2
    assert done.stderr.endswith("HEADWAY_SERVICE is no setting: did you mean HEADWAY_SERVICES?\n")


ON_A_BUS = [
    ("run", "shop"),
    ("sweep", "shop"),
    ("publish", "OrderPlaced", "{}"),
    ("verify",),
    ("failed", "list"),
    ("documents", "history"),
    ("unrouted", "list"),
    ("consensus", "status"),
]


@pytest.mark.parametrize("words", ON_A_BUS)
def test_an_empty_bus_is_refused_and_no_file_is_made(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "shop.py").write_text("from headway import Service\n\nshop = Service('shop')\n")
    for empty in (("--bus", ""), ("--bus", " ")):
        done = headway(*words, *empty, folder=tmp_path)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(f"headway: Invalid --bus {empty[1]!r}: it is empty. Is a ")
    done = headway(*words, folder=tmp_path, environment={"HEADWAY_BUS": ""})
    assert done.returncode == 2
    assert done.stderr == (
        "headway: Invalid HEADWAY_BUS '': it is empty. Is a variable unset? Set HEADWAY_BUS to a "
        "URL, or leave it out.\n"
    )
    assert list(tmp_path.glob("*.db*")) == []


@pytest.mark.parametrize("name", ["HEADWAY_STORE", "HEADWAY_SEQUENCES"])
def test_an_empty_store_is_refused(name: str) -> None:
    given = {"HEADWAY_BUS": "amqp://127.0.0.1:1", name: " "}
    for words in (("failed", "list"), ("order", "status"), ("config", "show")):
        done = headway(*words, environment=given)
        assert done.returncode == 2
        assert done.stderr.startswith(f"headway: Invalid {name} ' ': it is empty. Is a variable")
    done = headway("order", "status", "--sequences", "")
    assert done.stderr.startswith("headway: Invalid --sequences '': it is empty. Is a variable")


def test_a_settings_file_is_read_as_shells_and_docker_write_it(tmp_path: Path) -> None:
    file = tmp_path / "settings.env"
    file.write_text(
        "\ufeff# of the shop\n"
        "export RETRY_MAX_ATTEMPTS=3   # three\n"
        "HEADWAY_ERRORS = 'errors of # today.db' # quoted\n"
        'HEADWAY_SERVICES="a:b c:d"\n'
        "HEADWAY_SECRET_FIELDS=\n"
        "HEADWAY_LOG_LEVEL= # none: the usual one\n"
        "LEDGER_HOST=a#b\n",
        encoding="utf-8",
    )
    shown = shown_by({"HEADWAY_SETTINGS": str(file)})
    assert shown["RETRY_MAX_ATTEMPTS"] == "3"
    assert shown["HEADWAY_ERRORS"] == "errors of # today.db"
    assert shown["HEADWAY_SERVICES"] == "a:b c:d"
    assert shown["HEADWAY_LOG_LEVEL"] == "INFO"


@pytest.mark.parametrize("line", ["s3cret", "X='s3cret", "X='a' s3cret", "1X=s3cret", "a b=s3cret"])
def test_a_line_of_a_settings_file_that_cannot_be_read_is_named_with_its_cure(
    tmp_path: Path, line: str
) -> None:
    file = tmp_path / "settings.env"
    file.write_text(f"# one\n{line}\n")
    done = headway("config", "show", environment={"HEADWAY_SETTINGS": str(file)})
    assert done.returncode == 2
    assert done.stderr.startswith(f"headway: Invalid line 2 of HEADWAY_SETTINGS {str(file)!r}. Use")
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize(
    ("given", "meant"), [("HEADWAY_BUSS", "HEADWAY_BUS"), ("RETRY_TTL", "RETRY_TTL_MINUTES")]
)
def test_a_misspelt_name_in_a_settings_file_is_refused_with_its_line(
    tmp_path: Path, given: str, meant: str
) -> None:
    file = tmp_path / "settings.env"
    file.write_text(f"# one\nexport {given}=s3cret\nRETRY_MAX_ATTEMPTS=3\n")
    for words in (("config", "show"), ("failed", "list")):
        done = headway(*words, environment={"HEADWAY_SETTINGS": str(file)})
        assert done.returncode == 2
        assert done.stderr == (
            f"headway: {given} (line 2 of HEADWAY_SETTINGS {str(file)!r}) is no setting: did you "
            f"mean {meant}?\n"
        )


@pytest.mark.parametrize("name", ["HEADWAY", "headway_home", "HEADWAYS_OF_TRAINS", "HEADWAY_PORT"])
def test_names_of_other_programs_are_left_alone(name: str) -> None:
    assert shown_by({name: "x"}) == shown_by({})


def test_the_log_level_is_a_setting() -> None:
    assert shown_by({})["HEADWAY_LOG_LEVEL"] == "INFO"
    assert shown_by({"HEADWAY_LOG_LEVEL": "debug"})["HEADWAY_LOG_LEVEL"] == "DEBUG"
    done = headway("config", "show", environment={"HEADWAY_LOG_LEVEL": "loud"})
    assert done.stderr == (
        "headway: Invalid HEADWAY_LOG_LEVEL 'loud': unknown level. Use DEBUG, INFO, WARNING, ERROR "
        "or CRITICAL.\n"
    )


@pytest.mark.parametrize("command", [("run",), ("sweep",), ("ui",), ("ledger", "serve")])
def test_a_command_that_runs_things_refuses_an_unknown_log_level(command: tuple[str, ...]) -> None:
    done = headway(*command, "--log-level", "loud")
    assert done.returncode == 2
    assert "--log-level" in done.stderr
    assert "debug" in done.stderr
