"""What the containers of Headway run: commands that it has, with settings that it knows."""

import json
import os
import re
import shlex
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
import typer.main

from headway.assembly.settings import engine_settings, retry_config, sweep_settings
from headway.core.engine_url import AmqpUrl
from headway.core.policy import RETRY_SETTINGS
from headway.metrics import create_metrics_collector, error_reporter
from headway.settings import MongoUrl
from headway.systems.consensus.settings import PREFIX, ConsensusSettings
from headway.systems.consensus.settings import SETTINGS as CONSENSUS
from tests.commands import app
from tests.deploy.compose import PAGE, ROOT, STAGES, ours, services, words
from tests.deploy.test_compose import LISTENS, listening

SETTINGS_PAGE = ROOT / "docs" / "reference" / "settings.md"
_LOAD = """
import json, sys
from headway.assembly.loading import load_services
print(json.dumps([[service.name for service in load_services([name])] for name in sys.argv[1:]]))
"""


def parsed(command: list[str]) -> tuple[str, dict[str, Any]]:
    """Read a command line as `headway` does, without carrying it out; give command and options."""
    assert command[0] == "headway"
    context: Any = typer.main.get_command(app).make_context("headway", command[1:])
    while hasattr(context.command, "resolve_command"):
        left = [*context._protected_args, *context.args]
        name, found, rest = context.command.resolve_command(context, left)
        context = found.make_context(name, rest, parent=context)
    return context.command_path, context.params


def known() -> set[str]:
    """Give every setting that the page of settings has, and those of the pipeline."""
    tables = re.findall(r"^\| (`[A-Z].*?) \|", SETTINGS_PAGE.read_text(), re.MULTILINE)
    named = {name for cell in tables for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", cell)}
    return named | {PREFIX + setting.name for setting in CONSENSUS}


@pytest.mark.parametrize("name", [*STAGES, "retry-job", "errors"])
def test_a_command_is_one_that_headway_has(name: str) -> None:
    path, _ = parsed(words(name))
    assert path == {"retry-job": "headway sweep", "errors": "headway ui"}.get(name, "headway run")


def test_whoever_runs_the_tools_without_a_command_gets_the_help() -> None:
    with pytest.raises(typer.Exit) as end:
        parsed(words("headway"))
    assert end.value.exit_code == 0


def test_the_retry_job_can_be_run_once() -> None:
    path, options = parsed(words("retry-job", "--once"))
    assert (path, options["once"]) == ("headway sweep", True)
    assert parsed(words("retry-job"))[1]["once"] is False


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_runs_its_service_and_shows_metrics_to_others(name: str) -> None:
    _, options = parsed(words(name))
    assert options["services"] == [f"headway.systems.consensus.pipeline:{name}"]
    assert (options["metrics_host"], options["metrics_port"]) == ("0.0.0.0", 9464)  # noqa: S104
    assert ":9464/health'" in services()[name]["healthcheck"]["test"][-1]
    assert services()[name]["stop_grace_period"] == "45s"
    assert options["grace"] < 45


def test_the_services_that_are_named_are_there() -> None:
    """In a process of its own, with the settings that the containers have."""
    named = [parsed(words(name))[1]["services"][0] for name in STAGES]
    given = dict(ours()["retry-job"]["environment"])
    del given[
        "CONSENSUS_VECTORS"
    ]  # its client takes a second to load, and services have no say in it
    swept = given["HEADWAY_SERVICES"].split()
    run = subprocess.run(
        [sys.executable, "-c", _LOAD, *named, *swept],
        env={**_clean(), **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [*([name] for name in STAGES), list(STAGES)]


def _clean() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


@pytest.mark.parametrize("name", ours())
def test_the_environment_has_settings_that_there_are(name: str) -> None:
    given = ours()[name]["environment"]
    assert given
    assert set(given) <= known()


def test_the_page_of_settings_is_read_whole() -> None:
    assert {f"RETRY_{setting.name}" for setting in RETRY_SETTINGS} >= {"RETRY_MAX_ATTEMPTS"}
    assert {"HEADWAY_BUS", "MONGODB_PASSWORD", "RETRY_JOB_LIMIT", "CONSENSUS_DATA"} <= known()
    assert "RETRY_JOB_INTERVALL" not in known()


@pytest.mark.parametrize("name", sorted(set(ours()) - {"errors"}))
def test_the_settings_are_accepted_and_mean_the_servers_beside(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in list(os.environ):
        if each not in _clean():
            monkeypatch.delenv(each)
    given = ours()[name]["environment"]
    for each, value in given.items():
        monkeypatch.setenv(each, value)
    engine = engine_settings()
    assert isinstance(engine.bus, AmqpUrl)
    assert (engine.bus.host, engine.bus.port) == ("messagebus", 5672)
    assert isinstance(engine.store, MongoUrl)
    assert engine.store.database == "copilot"
    assert engine.store_url.startswith("mongodb://root:example@documentdb:27017/")
    assert engine.exchange == "copilot.events"
    retry_config()
    sweep_settings()
    ConsensusSettings.from_mapping(given)
    error_reporter()
    create_metrics_collector()


@pytest.mark.parametrize("setting", ["ERROR_REPORTER_URL", "PUSHGATEWAY_URL", "CONSENSUS_VECTORS"])
def test_an_address_in_a_setting_is_that_of_somebody_who_listens(setting: str) -> None:
    given = {
        service["environment"][setting]
        for service in ours().values()
        if setting in service["environment"]
    }
    (url,) = given
    host = urlsplit(url).hostname
    assert host in services()
    assert urlsplit(url).port in listening(host)


def test_the_logins_of_the_servers_are_those_of_the_services() -> None:
    given = ours()["parsing"]["environment"]
    mongodb, rabbitmq = (services()[name]["environment"] for name in ("documentdb", "messagebus"))
    assert given["MONGODB_USERNAME"] == mongodb["MONGO_INITDB_ROOT_USERNAME"]
    assert given["MONGODB_PASSWORD"] == mongodb["MONGO_INITDB_ROOT_PASSWORD"]
    assert given["RABBITMQ_USERNAME"] == rabbitmq["RABBITMQ_DEFAULT_USER"]
    assert given["RABBITMQ_PASSWORD"] == rabbitmq["RABBITMQ_DEFAULT_PASS"]
    assert int(given["MONGODB_PORT"]) in LISTENS["documentdb"]
    assert int(given["RABBITMQ_PORT"]) in LISTENS["messagebus"]


def commands_of_the_page() -> list[str]:
    """Give what the page tells people to type."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.partition(" # ")[0].strip() for line in lines if "docker compose" in line]


@pytest.mark.parametrize("line", commands_of_the_page())
def test_the_page_names_services_and_commands_that_there_are(line: str) -> None:
    typed = shlex.split(line)
    typed = typed[typed.index("compose") + 1 :]
    match typed:
        case ["run", "--rm", *rest]:
            while rest[0] == "-v":
                rest = rest[2:]
            service, *command = rest
            parsed(words(service, *command))
        case ["cp", place, _]:
            assert place.partition(":")[0] in services()
        case [("up" | "down" | "ps" | "logs" | "restart"), *rest]:
            assert {word for word in rest if not word.startswith("-")} <= set(services())
        case _:
            pytest.fail(f"nobody has looked at: {line}")
