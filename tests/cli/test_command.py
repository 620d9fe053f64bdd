"""`headway` itself: how it starts, its help, and the settings that it shows and refuses."""

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
from tests.cli.shops import COMMAND, typed

__all__ = ["COMMAND", "headway"]


def headway(
    *words: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command as a process of its own."""
    return subprocess.run(
        [*COMMAND, *words],
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", **(environment or {})},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def show(environment: Mapping[str, str]) -> tuple[int, dict[str, str], list[str]]:
    """Give the exit code of `headway config show`, the settings, and the lines of its errors."""
    done = typed("config", "show", "--json", environment=environment)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr.splitlines()


def test_it_says_its_version_and_its_commands() -> None:
    assert headway("--version").stdout == f"headway {version('headway')}\n"
    said = typed()
    assert all(name in said.stdout + said.stderr for name in ("config", "demo", "ledger"))


def loaded(statement: str) -> set[str]:
    program = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*set(sys.modules)-before)"
    run = [sys.executable, "-c", program]
    return set(subprocess.run(run, capture_output=True, text=True, check=True).stdout.split())


def test_what_one_command_needs_does_not_slow_down_the_others() -> None:
    found = loaded("import headway.apps.cli.commands")
    assert "headway.apps.cli.failed" in found
    for slow in ("headway.runtime", "headway.adapters.sqlite", "rich.table", "fastapi", "httpx"):
        assert [name for name in found if f"{name}.".startswith(f"{slow}.")] == []


@pytest.mark.parametrize(
    ("statement", "packages"),
    [
        ("import headway", {"headway"}),
        ("from headway import RetryConfig, classify_dsql_error", {"headway"}),
        ("from headway.retrying import Classifier", {"headway"}),
        (
            "from headway import retry, retry_on_oc000, run_transaction",
            {"headway", "tenacity", "typing_extensions"},
        ),
    ],
)
def test_an_import_loads_no_driver(statement: str, packages: set[str]) -> None:
    found = {name.partition(".")[0] for name in loaded(statement)}
    assert found - sys.stdlib_module_names <= packages


@pytest.mark.parametrize(
    ("package", "words", "cure"),
    [("typer", ("--version",), "[cli]"), ("uvicorn", ("ledger", "serve"), "[ledger]")],
)
def test_a_package_that_is_missing_is_named_with_its_cure(
    package: str, words: tuple[str, ...], cure: str
) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['headway', *{words!r}]; "
        "import runpy; runpy.run_module('headway.apps.cli')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert package in done.stderr
    assert cure in done.stderr


def test_a_port_that_is_taken_and_a_server_that_is_away_are_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = typed("ledger", "serve", "--port", port, folder=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "LEDGER_HOST='127.0.0.1'" in done.stderr
    away = typed("ledger", "load", "--url", f"http://127.0.0.1:{free_port()}")
    assert away.returncode == 3
    assert "headway ledger serve" in away.stderr


# config show


def test_the_settings_in_force_are_shown_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "settings.env"
    file.write_text("HEADWAY_ERRORS=errors-of-today.db\n")
    given = {
        "HEADWAY_SETTINGS": str(file),
        "LEDGER_DATABASE_URL": "postgresql://u:s3cret@h/x",
        "RETRY_MAX_ATTEMPTS": "3",
        "HEADWAY_LOG_LEVEL": "debug",
    }
    code, shown, said = show(given)
    assert (code, said) == (0, [])
    expected = {
        **given,
        "HEADWAY_ERRORS": "errors-of-today.db",
        "LEDGER_DATABASE_URL": "postgresql://u:***@h/x",
        "HEADWAY_LOG_LEVEL": "DEBUG",
        "RETRY_BASE_DELAY_MS": "250",
        "RETRY_MAX_DELAY_SECONDS": "60",
    }
    assert shown.items() >= expected.items()
    plain = typed("config", "show").stdout.splitlines()
    assert [line.split()[0] for line in plain] == list(shown)


def test_invalid_settings_hide_no_other_setting(tmp_path: Path) -> None:
    invalid = {
        "HEADWAY_BUSS": "sqlite:///x.db",
        "METRICS_BACKEND": "promotheus",
        "ERROR_REPORTER_TYPE": "sentry",
        "RETRY_MAX_ATTEMPTS": "many",
        "RETRY_TTL_MINUTES": "soon",
        "RETRY_JOB_INTERVAL_SECONDS": "often",
        "LEDGER_PORT": "http",
        "LEDGER_DATABASE_URL": "mysql://u:s3cret@h/x",
        "ERROR_REPORTER_URL": "http://bob:s3cret/x@localhost:8095/api/errors",
    }
    missing = {"HEADWAY_SETTINGS": str(tmp_path / "missing")}
    code, shown, said = show({**invalid, **missing, "RETRY_BASE_DELAY_MS": "125"})
    _, usual, _ = show({})
    assert code == 2
    assert {name for name, value in shown.items() if value == "(invalid)"} == set(invalid)
    assert shown["RETRY_BASE_DELAY_MS"] == "125"
    others = usual.keys() - {*invalid, *missing, "RETRY_BASE_DELAY_MS"}
    assert {name: shown[name] for name in others} == {name: usual[name] for name in others}
    assert len(said) == len(invalid) + 1
    assert all(any(name in line for line in said) for name in (*invalid, *missing))
    assert "s3cret" not in f"{said} {shown}"


BROKER = {"HEADWAY_BUS": "amqp://me:s3cret@broker"}
MONGODB = {"MONGODB_HOST": "db", "MONGODB_DATABASE": "a.b"}


@pytest.mark.parametrize(
    ("given", "invalid"),
    [
        ({**BROKER, "HEADWAY_STORE": "mysql://h/x"}, "HEADWAY_STORE"),
        ({"RABBITMQ_HOST": "broker", "RABBITMQ_PORT": "amqp"}, "HEADWAY_BUS"),
        ({"RABBITMQ_HOST": "amqp://broker"}, "HEADWAY_BUS"),
        ({"HEADWAY_BUS": "kafka://broker"}, "HEADWAY_BUS"),
        ({**BROKER, **MONGODB}, "HEADWAY_STORE"),
        ({**BROKER, "HEADWAY_STORE": " "}, "HEADWAY_STORE"),
        ({**BROKER, "HEADWAY_SEQUENCES": ""}, "HEADWAY_SEQUENCES"),
    ],
)
def test_no_default_is_shown_in_place_of_what_is_invalid(
    given: dict[str, str], invalid: str
) -> None:
    code, shown, said = show(given)
    assert (code, len(said)) == (2, 1)
    assert shown[invalid] == shown["HEADWAY_SEQUENCES"] == "(invalid)"
    if invalid != "HEADWAY_BUS":
        assert shown["HEADWAY_BUS"] == "amqp://me:***@broker"


PUSHED = {"METRICS_BACKEND": "prometheus_pushgateway", "PUSHGATEWAY_URL": "gateway:9091"}


@pytest.mark.parametrize(
    ("command", "given", "invalid"),
    [
        ("ui --port 0", {"HEADWAY_UI_TOKEN": "short"}, "HEADWAY_UI_TOKEN"),
        ("order status", {"HEADWAY_SEQUENCES": "kafka://h"}, "HEADWAY_SEQUENCES"),
        ("sweep", {"HEADWAY_SERVICES": "a:b,c:d"}, "HEADWAY_SERVICES"),
        ("ui --port 0", {"HEADWAY_LOG_LEVEL": "loud"}, "HEADWAY_LOG_LEVEL"),
        ("sweep shop", PUSHED, "PUSHGATEWAY_URL"),
    ],
)
def test_what_a_command_refuses_is_invalid_by_config_show(
    command: str, given: dict[str, str], invalid: str
) -> None:
    refused = typed(*command.split(), environment=given)
    code, shown, said = show(given)
    assert (refused.returncode, code) == (2, 2)
    assert invalid in refused.stderr
    assert said[0].partition(". ")[0] == refused.stderr.rstrip().partition(". ")[0]
    assert [name for name, value in shown.items() if value == "(invalid)"] == [invalid]
    others = given.keys() - {invalid}
    assert {name: shown[name] for name in others} == {name: given[name] for name in others}


def test_a_default_file_that_is_missing_blames_no_setting(tmp_path: Path) -> None:
    done = typed("failed", "list", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert str(tmp_path / "headway.db") in done.stderr
    assert "Invalid" not in done.stderr
    named = {"HEADWAY_BUS": "sqlite:///headway.db"}
    done = typed("failed", "list", folder=tmp_path, environment=named)
    assert "Invalid HEADWAY_BUS 'sqlite:///headway.db'" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        "run shop",
        "sweep shop",
        "publish OrderPlaced {}",
        "verify",
        "failed list",
        "documents history",
        "unrouted list",
        "consensus status",
    ],
)
def test_an_empty_bus_is_refused_and_no_file_is_made(tmp_path: Path, command: str) -> None:
    (tmp_path / "shop.py").write_text("from headway import Service\n\nshop = Service('shop')\n")
    for option, setting in (("--bus=", {}), ("--bus= ", {}), ("", {"HEADWAY_BUS": ""})):
        words = (*command.split(), *([option] if option else ()))
        done = typed(*words, folder=tmp_path, environment=setting)
        assert done.returncode == 2, done.stderr
        assert re.match(r"headway: Invalid (--bus|HEADWAY_BUS) ' ?':", done.stderr)
    assert list(tmp_path.glob("*.db*")) == []


# The file of settings


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
    _, shown, _ = show({"HEADWAY_SETTINGS": str(file)})
    expected = {
        "RETRY_MAX_ATTEMPTS": "3",
        "HEADWAY_ERRORS": "errors of # today.db",
        "HEADWAY_SERVICES": "a:b c:d",
        "HEADWAY_LOG_LEVEL": "INFO",
        "LEDGER_HOST": "a#b",
    }
    assert shown.items() >= expected.items()


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("s3cret", ""),
        ("X='s3cret", ""),
        ("X='a' s3cret", ""),
        ("1X=s3cret", ""),
        ("a b=s3cret", ""),
        ("export HEADWAY_BUSS=s3cret", "HEADWAY_BUS?"),
        ("RETRY_TTL=s3cret", "RETRY_TTL_MINUTES?"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_without_its_value(
    tmp_path: Path, line: str, meant: str
) -> None:
    file = tmp_path / "settings.env"
    file.write_text(f"# one\n{line}\nRETRY_MAX_ATTEMPTS=3\n")
    for words in (("config", "show"), ("failed", "list")):
        done = typed(*words, environment={"HEADWAY_SETTINGS": str(file)})
        assert done.returncode == 2
        assert f"line 2 of HEADWAY_SETTINGS {str(file)!r}" in done.stderr
        assert meant in done.stderr
        assert "s3cret" not in done.stderr


def test_names_of_other_programs_are_left_alone() -> None:
    names = ("HEADWAY", "headway_home", "HEADWAYS_OF_TRAINS", "HEADWAY_PORT")
    assert show(dict.fromkeys(names, "x")) == show({})


@pytest.mark.parametrize("command", ["run", "sweep", "ui", "ledger serve"])
def test_a_command_that_runs_things_refuses_an_unknown_log_level(command: str) -> None:
    done = typed(*command.split(), "--log-level", "loud")
    assert done.returncode == 2
    assert "--log-level" in done.stderr


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RETRY_MAX_RETRIES", "RETRY_MAX_ATTEMPTS"),
        ("EVENT_RETRY_RETRIES", "EVENT_RETRY_MAX_ATTEMPTS"),
        ("RABBITMQ_URL", "HEADWAY_BUS"),
        ("RETRY_COLOUR", ""),
        ("RETRY_JOB_MAX_ATTEMPTS", ""),
    ],
)
def test_a_setting_in_the_words_of_another_library_is_named(
    name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    typed("config", "show", environment={name: "3"})
    named = f"{name} is no setting of Headway and has no effect. Did you mean {meant}?"
    assert (named in caplog.text) is bool(meant)
    assert ("no setting" in caplog.text) is bool(meant)
