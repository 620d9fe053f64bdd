"""The compose file: accepted by its schema, and everything that it names is there.

No container engine takes part in this: nothing here has seen a container start.
"""

import fnmatch
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
import typer.main

from headway.systems.consensus.settings import PREFIX
from headway.systems.consensus.settings import SETTINGS as CONSENSUS
from tests.cli.shops import typed
from tests.commands import app
from tests.deploy.compose import (
    FILE,
    FOLDER,
    PAGE,
    ROOT,
    STAGES,
    compose,
    dockerfile,
    inside,
    instructions,
    mounts,
    ours,
    ports,
    services,
    variables,
    words,
)

# The port that each program listens on by itself, where no command line says another.
LISTENS = {
    "documentdb": {27017},
    "messagebus": {5672, 15672, 15692},
    "qdrant": {6333},
    "pushgateway": {9091},
    "prometheus": {9090},
    "alertmanager": {9093},
    "grafana": {3000},
    "loki": {3100},
}
OF_THE_MACHINE = "/var/lib/docker/containers"
SETTINGS_PAGE = ROOT / "docs" / "reference" / "settings.md"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILES = sorted({dockerfile(name) for name in ours()})


def listening(name: str) -> set[int]:
    if name not in ours():
        return LISTENS.get(name, set())
    options = {"--port", "--metrics-port"}
    return {int(value) for option, value in pairwise(words(name)) if option in options}


def listens(address: str) -> bool:
    """Say whether a container listens at HOST:PORT, or at such a URL."""
    url = urlsplit(address if "//" in address else f"//{address}")
    return url.port in listening(str(url.hostname))


def test_the_schema_of_compose_accepts_it() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", FILE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_retry_job_is_what_the_document_says() -> None:
    job = services()["retry-job"]
    environment = {
        "MONGODB_HOST": "documentdb",
        "MONGODB_PORT": "27017",
        "MONGODB_DATABASE": "copilot",
        "MONGODB_USERNAME": "root",
        "MONGODB_PASSWORD": "example",
        "RABBITMQ_HOST": "messagebus",
        "RABBITMQ_PORT": "5672",
        "RABBITMQ_USERNAME": "guest",
        "RABBITMQ_PASSWORD": "guest",
        "METRICS_BACKEND": "prometheus_pushgateway",
        "PUSHGATEWAY_URL": "http://pushgateway:9091",
        "RETRY_JOB_INTERVAL_SECONDS": "900",
    }
    assert environment.items() <= job["environment"].items()
    assert job["build"]["dockerfile"].endswith("/Dockerfile.retry-job")
    assert parsed(words("retry-job", "--once"))[1]["once"] is True
    assert {"MONGO_APP_DB", "DOC_DB_ADMIN_USERNAME", "DOC_DB_ADMIN_PASSWORD"} <= set(variables())


def test_what_is_waited_for_is_there_and_has_a_check_of_its_health() -> None:
    for service in services().values():
        for other, how in service.get("depends_on", {}).items():
            assert "profiles" not in services()[other]
            assert how["condition"] in {"service_healthy", "service_started"}
            if how["condition"] == "service_healthy":
                assert services()[other]["healthcheck"]["test"][0] == "CMD"
    for name in services():
        assert name not in waited_for(name)
    # A stage starts when those that it sends to have their queues.
    receivers = {"ingestion": {"parsing"}, "parsing": {"chunking", "orchestrator"}}
    receivers |= {"chunking": {"embedding"}, "embedding": {"orchestrator", "qdrant"}}
    receivers |= {"orchestrator": {"summarization"}, "summarization": {"reporting"}}
    for sender, others in receivers.items():
        assert others | {"documentdb", "messagebus"} <= set(services()[sender]["depends_on"])


def waited_for(name: str) -> set[str]:
    found: set[str] = set()
    ahead = [name]
    while ahead:
        new = set(services()[ahead.pop()].get("depends_on", {})) - found
        found |= new
        ahead.extend(new)
    return found


def test_ports_are_open_to_this_machine_only_and_a_program_listens() -> None:
    opened = [(name, *port) for name in services() for port in ports(name)]
    for name, address, _, inner in opened:
        assert address == "127.0.0.1"
        assert inner in listening(name)
    assert len({outer for _, _, outer, _ in opened}) == len(opened)
    assert ports("loki") == ports("promtail") == []


def test_what_is_mounted_is_there_and_every_volume_is_used() -> None:
    found = [mount for name in services() for mount in mounts(name)]
    assert set(compose()["volumes"]) == {mount.source for mount in found if mount.is_named}
    for mount in found:
        if not mount.is_named and mount.source != OF_THE_MACHINE:
            assert mount.path.exists(), mount.source
            assert mount.source.startswith(("./", "../"))


def told_files() -> Iterator[tuple[str, str]]:
    """Give every path below /etc that a container is told to read."""
    for name, service in services().items():
        told: list[Any] = [
            *service.get("command", []),
            *service.get("entrypoint", []),
            *service.get("healthcheck", {}).get("test", []),
            *service.get("environment", {}).values(),
        ]
        for text in told:
            for path in re.findall(r"(?:^|=)(/etc/[^\s;]+)", str(text)):
                yield name, path


def test_a_file_that_a_container_is_told_to_read_is_mounted_there() -> None:
    told = list(told_files())
    assert {"documentdb", "prometheus", "grafana", "promtail"} <= {name for name, _ in told}
    for name, path in told:
        file = inside(name, path)
        assert file is not None
        assert file.is_file()
    for script in (FOLDER / "mongodb").glob("*.sh"):
        assert subprocess.run(["/bin/bash", "-n", script], check=False).returncode == 0


def test_mongodb_is_a_replica_set_and_its_member_has_the_name_that_others_use() -> None:
    assert "--replSet rs0 " in (FOLDER / "mongodb" / "start.sh").read_text()
    member = '_id: "rs0", members: [{ _id: 0, host: "documentdb:27017" }]'
    assert member in (FOLDER / "mongodb" / "healthy.js").read_text()
    assert services()["documentdb"]["hostname"] == "documentdb"


@pytest.mark.parametrize("name", services())
def test_images_are_pinned_logs_bounded_and_everything_comes_back_by_itself(name: str) -> None:
    service = services()[name]
    tag = service["image"].rpartition(":")[2]
    assert re.match(r"v?\d+\.\d+\.\d+", tag)
    assert (tag == PROJECT["version"]) is (name in ours())
    assert {"max-size", "max-file", "labels"} <= set(service["logging"]["options"])
    assert service["restart"] == ("no" if name == "headway" else "unless-stopped")
    assert ("profiles" in service) is (name == "headway")


def test_a_variable_has_one_default_and_the_page_names_both() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", PAGE.read_text(), re.MULTILINE))
    assert {name: {default} for name, default in rows.items()} == variables()


# What the containers of Headway run


def parsed(command: list[str]) -> tuple[str, dict[str, Any]]:
    """Read a command line as `headway` does, without carrying it out; give command and options."""
    assert command[0] == "headway"
    context: Any = typer.main.get_command(app).make_context("headway", command[1:])
    while hasattr(context.command, "resolve_command"):
        left = [*context._protected_args, *context.args]
        name, found, rest = context.command.resolve_command(context, left)
        context = found.make_context(name, rest, parent=context)
    return context.command_path, context.params


def test_the_commands_are_ones_that_headway_has() -> None:
    assert parsed(words("retry-job"))[0] == "headway sweep"
    assert parsed(words("errors"))[0] == "headway ui"
    for name in STAGES:
        path, options = parsed(words(name))
        assert path == "headway run"
        assert options["services"] == [f"headway.systems.consensus.pipeline:{name}"]
        shown = (options["metrics_host"], options["metrics_port"])
        assert shown == ("0.0.0.0", 9464)  # noqa: S104
        assert ":9464/health'" in services()[name]["healthcheck"]["test"][-1]
        assert options["grace"] < int(services()[name]["stop_grace_period"].removesuffix("s"))


LOAD = """
import json, sys
from headway.systems.consensus import pipeline
print(json.dumps([getattr(pipeline, name).name for name in sys.argv[1:]]))
"""


def test_the_services_that_are_named_are_there() -> None:
    """In a process of its own, with the settings that the containers have."""
    given = dict(ours()["retry-job"]["environment"])
    assert given["HEADWAY_SERVICES"] == "headway.systems.consensus.pipeline"
    del given["CONSENSUS_VECTORS"]  # its client takes a second to load
    command = [sys.executable, "-c", LOAD, *STAGES]
    env = {"PATH": os.environ["PATH"], **given}
    loaded = json.loads(subprocess.check_output(command, env=env))
    assert loaded == list(STAGES)


def known() -> set[str]:
    """Give every setting that the page of settings has, and those of the pipeline."""
    tables = re.findall(r"^\| (`[A-Z].*?) \|", SETTINGS_PAGE.read_text(), re.MULTILINE)
    named = {name for cell in tables for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", cell)}
    return named | {PREFIX + setting.name for setting in CONSENSUS}


@pytest.mark.parametrize("name", ours())
def test_the_settings_are_known_accepted_and_mean_the_servers_beside(name: str) -> None:
    given = ours()[name]["environment"]
    assert "RETRY_JOB_LIMIT" in known()
    assert given.keys() <= known()
    done = typed("config", "show", "--json", environment={k: str(v) for k, v in given.items()})
    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    if name != "errors":
        assert shown["HEADWAY_BUS"] == "amqp://guest:***@messagebus:5672/%2F"
        store = "mongodb://root:***@documentdb:27017/copilot?authSource=admin"
        assert shown["HEADWAY_STORE"] == store
    for setting in ("ERROR_REPORTER_URL", "PUSHGATEWAY_URL", "CONSENSUS_VECTORS"):
        assert setting not in given or listens(given[setting])


def test_the_logins_of_the_servers_are_those_of_the_services() -> None:
    given = ours()["parsing"]["environment"]
    mongodb, rabbitmq = (services()[name]["environment"] for name in ("documentdb", "messagebus"))
    assert given["MONGODB_USERNAME"] == mongodb["MONGO_INITDB_ROOT_USERNAME"]
    assert given["MONGODB_PASSWORD"] == mongodb["MONGO_INITDB_ROOT_PASSWORD"]
    assert given["RABBITMQ_USERNAME"] == rabbitmq["RABBITMQ_DEFAULT_USER"]
    assert given["RABBITMQ_PASSWORD"] == rabbitmq["RABBITMQ_DEFAULT_PASS"]


def test_the_page_names_services_and_commands_that_there_are() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    lines = [line.partition(" # ")[0].strip() for line in lines if "docker compose" in line]
    assert lines
    for line in lines:
        said = shlex.split(line)
        match said[said.index("compose") + 1 :]:
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
                pytest.fail(f"no test has looked at: {line}")


# Images


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_an_image_has_what_it_copies_and_does_not_run_as_root(file: Path) -> None:
    lines = instructions(file)
    copied = [
        source
        for word, rest in lines
        if word == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    ]
    assert {"pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} <= set(copied)
    ignore = file.with_name(f"{file.name}.dockerignore").read_text().splitlines()
    rules = [line for line in ignore if line and not line.startswith("#")]
    for source in copied:
        assert (ROOT / source).exists()
        last = [rule for rule in rules if fnmatch.fnmatch(source, rule.lstrip("!"))][-1]
        assert last == f"!{source}"
    (install,) = [rest for _, rest in lines if "pip install" in rest]
    (names,) = re.findall(r"'\.\[([\w,]+)\]'", install)
    extras = set(names.split(","))
    assert extras <= set(PROJECT["optional-dependencies"])
    assert {"cli", "rabbitmq", "mongodb", "prometheus", "consensus"} <= extras
    (base,) = {rest.split()[0] for word, rest in lines if word == "FROM"}
    found = re.fullmatch(r"python:(3\.\d+)\.\d+-slim-\w+", base)
    assert found is not None
    assert f"Programming Language :: Python :: {found[1]}" in PROJECT["classifiers"]
    last_of = dict(lines)
    assert last_of["ENTRYPOINT"].startswith('["headway"')
    assert last_of["USER"] == "headway"


@pytest.mark.parametrize("name", ours())
def test_a_folder_that_is_written_to_belongs_to_the_user(name: str) -> None:
    """A volume is given the owner of the folder that the image has in its place."""
    assert (FOLDER / ours()[name]["build"]["context"]).resolve() == ROOT
    (made,) = re.findall(
        r"install -d -o headway -g headway ([^&]+)",
        " ".join(rest for word, rest in instructions(dockerfile(name)) if word == "RUN"),
    )
    written = {each.split(":")[1] for each in ours()[name]["volumes"] if not each.endswith(":ro")}
    assert written <= set(made.split())
    assert ours()[name]["read_only"] is True
