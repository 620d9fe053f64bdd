"""The compose file: accepted by its schema, and everything that it names is there.

No container engine takes part in this: nothing here has seen a container start.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.deploy.compose import (
    FILE,
    FOLDER,
    PAGE,
    ROOT,
    STAGES,
    compose,
    inside,
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
# What the images of others read, of what they are given.
READS = {
    "documentdb": {"MONGO_INITDB_ROOT_USERNAME", "MONGO_INITDB_ROOT_PASSWORD"},
    "messagebus": {"RABBITMQ_DEFAULT_USER", "RABBITMQ_DEFAULT_PASS"},
    "qdrant": {"QDRANT__TELEMETRY_DISABLED"},
    "grafana": {
        "GF_SECURITY_ADMIN_USER",
        "GF_SECURITY_ADMIN_PASSWORD",
        "GF_USERS_ALLOW_SIGN_UP",
        "GF_ANALYTICS_REPORTING_ENABLED",
        "GF_ANALYTICS_CHECK_FOR_UPDATES",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH",
    },
}
OF_THE_MACHINE = "/var/lib/docker/containers"


def test_the_schema_of_compose_accepts_it() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", FILE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_part_of_the_stack_is_there() -> None:
    base = {"documentdb", "messagebus", "qdrant"}
    watching = {"pushgateway", "prometheus", "alertmanager", "grafana", "loki", "promtail"}
    assert set(services()) == base | watching | {*STAGES, "retry-job", "errors", "headway"}
    assert set(ours()) == {*STAGES, "retry-job", "errors", "headway"}


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
    assert job["restart"] == "unless-stopped"
    assert job["build"]["dockerfile"].endswith("/Dockerfile.retry-job")
    assert job["depends_on"] == {
        "documentdb": {"condition": "service_healthy"},
        "messagebus": {"condition": "service_healthy"},
        "pushgateway": {"condition": "service_started"},
    }
    assert {"MONGO_APP_DB", "DOC_DB_ADMIN_USERNAME", "DOC_DB_ADMIN_PASSWORD"} <= set(variables())


def dependencies() -> Iterator[tuple[str, str, str]]:
    for name, service in services().items():
        for other, how in service.get("depends_on", {}).items():
            yield name, other, how["condition"]


@pytest.mark.parametrize(("name", "other", "condition"), list(dependencies()))
def test_whoever_is_waited_for_is_there_and_says_when_it_is_healthy(
    name: str, other: str, condition: str
) -> None:
    assert other in services()
    assert "profiles" not in services()[other]
    assert condition in {"service_healthy", "service_started"}
    if condition == "service_healthy":
        assert services()[other]["healthcheck"]["test"][0] == "CMD"


def test_nobody_waits_for_himself() -> None:
    for name in services():
        assert name not in waited_for(name)


def waited_for(name: str) -> set[str]:
    found: set[str] = set()
    ahead = [name]
    while ahead:
        new = set(services()[ahead.pop()].get("depends_on", {})) - found
        found |= new
        ahead.extend(new)
    return found


@pytest.mark.parametrize(
    ("sender", "receivers"),
    [
        ("ingestion", ["parsing"]),
        ("parsing", ["chunking", "orchestrator"]),
        ("chunking", ["embedding"]),
        ("embedding", ["orchestrator", "qdrant"]),
        ("orchestrator", ["summarization"]),
        ("summarization", ["reporting"]),
    ],
)
def test_a_stage_starts_when_those_that_it_sends_to_have_their_queues(
    sender: str, receivers: list[str]
) -> None:
    assert set(receivers) <= set(services()[sender]["depends_on"])
    assert {"documentdb", "messagebus"} <= set(services()[sender]["depends_on"])


@pytest.mark.parametrize("name", services())
def test_ports_are_open_to_this_machine_only_and_somebody_listens(name: str) -> None:
    for address, _, inner in ports(name):
        assert address == "127.0.0.1"
        assert inner in listening(name)


def listening(name: str) -> set[int]:
    if name not in ours():
        return LISTENS.get(name, set())
    command = words(name)
    return {
        int(value) for option, value in pairwise(command) if option in {"--port", "--metrics-port"}
    }


def test_no_port_of_the_machine_is_taken_twice() -> None:
    taken = [outer for name in services() for _, outer, _ in ports(name)]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize("name", services())
def test_whatever_is_mounted_is_there(name: str) -> None:
    for mount in mounts(name):
        if mount.is_named:
            assert mount.source in compose()["volumes"]
        elif mount.source != OF_THE_MACHINE:
            assert mount.path.exists(), mount.source
            assert mount.source.startswith(("./", "../"))


def test_every_volume_is_used() -> None:
    named = {mount.source for name in services() for mount in mounts(name) if mount.is_named}
    assert set(compose()["volumes"]) == named


def own_files() -> Iterator[tuple[str, str]]:
    """Give every path below /etc that somebody is told to read."""
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


@pytest.mark.parametrize(("name", "path"), list(own_files()))
def test_a_file_that_a_container_is_told_to_read_is_mounted_there(name: str, path: str) -> None:
    file = inside(name, path)
    assert file is not None
    assert file.is_file()


def test_whose_files_were_looked_at() -> None:
    assert {name for name, _ in own_files()} == {
        "documentdb",
        "prometheus",
        "alertmanager",
        "grafana",
        "loki",
        "promtail",
    }


@pytest.mark.parametrize(
    "script", sorted((FOLDER / "mongodb").glob("*.sh")), ids=lambda file: file.name
)
def test_bash_can_read_a_script(script: Any) -> None:
    run = subprocess.run(["bash", "-n", script], capture_output=True, check=False)  # noqa: S607
    assert run.returncode == 0, run.stderr


def test_mongodb_is_a_replica_set_and_its_member_has_the_name_that_others_use() -> None:
    assert "--replSet rs0 " in (FOLDER / "mongodb" / "start.sh").read_text()
    member = '_id: "rs0", members: [{ _id: 0, host: "documentdb:27017" }]'
    assert member in (FOLDER / "mongodb" / "healthy.js").read_text()
    assert services()["documentdb"]["hostname"] == "documentdb"


@pytest.mark.parametrize("name", services())
def test_an_image_is_pinned_to_a_version(name: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    tag = services()[name]["image"].rpartition(":")[2]
    assert re.match(r"v?\d+\.\d+\.\d+", tag)
    assert (tag == version) is (name in ours())


@pytest.mark.parametrize("name", sorted(set(services()) - set(ours())))
def test_the_images_of_others_know_what_they_are_given(name: str) -> None:
    assert set(services()[name].get("environment", {})) == READS.get(name, set())


@pytest.mark.parametrize("name", services())
def test_logs_are_bounded_and_say_whose_they_are(name: str) -> None:
    options = services()[name]["logging"]["options"]
    assert {"max-size", "max-file"} <= set(options)
    assert options["labels"] == "com.docker.compose.service"


@pytest.mark.parametrize("name", services())
def test_everything_comes_back_by_itself_except_what_a_person_runs(name: str) -> None:
    by_hand = name == "headway"
    assert services()[name]["restart"] == ("no" if by_hand else "unless-stopped")
    assert ("profiles" in services()[name]) is by_hand


def test_a_variable_has_one_default_and_the_page_names_both() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", PAGE.read_text(), re.MULTILINE))
    assert {name: {default} for name, default in rows.items()} == variables()
