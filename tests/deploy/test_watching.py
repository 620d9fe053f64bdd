"""What watches the stack: its files name what is there, and fit each other."""

import json
import logging
import re
import subprocess
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from headway.logs import JsonFormatter
from tests.deploy.compose import FOLDER, STAGES, inside, services
from tests.deploy.expressions import BOARDS, RULES, alerts
from tests.deploy.test_compose import listens, waited_for

PROMETHEUS = FOLDER / "prometheus" / "prometheus.yml"
ALERTMANAGER = FOLDER / "alertmanager" / "alertmanager.yml"
PROVISIONING = FOLDER / "grafana" / "provisioning"
LOKI = FOLDER / "loki" / "loki.yml"
PROMTAIL = FOLDER / "promtail" / "promtail.yml"


def read(file: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


def test_prometheus_scrapes_every_service_loads_all_alerts_and_sends_them() -> None:
    config = read(PROMETHEUS)
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    targets = {
        name: [target for each in job["static_configs"] for target in each["targets"]]
        for name, job in jobs.items()
    }
    assert set(jobs) == {"headway", "pushgateway", "rabbitmq"}
    assert targets["headway"] == [f"{name}:9464" for name in STAGES]
    assert all(listens(target) for each in targets.values() for target in each)
    assert jobs["pushgateway"]["honor_labels"] is True  # what was pushed keeps its job
    assert jobs["rabbitmq"]["metrics_path"] == "/metrics/per-object"
    plugins = inside("messagebus", "/etc/rabbitmq/enabled_plugins")
    assert plugins is not None
    assert "rabbitmq_prometheus" in plugins.read_text()
    (pattern,) = config["rule_files"]
    mounted = inside("prometheus", "/etc/prometheus/prometheus.yml")
    assert mounted is not None
    assert sorted(mounted.resolve().parent.glob(pattern)) == RULES
    (manager,) = config["alerting"]["alertmanagers"]
    (target,) = manager["static_configs"][0]["targets"]
    assert listens(target)
    assert target.partition(":")[0] in waited_for("prometheus")


@pytest.mark.server("alertmanager")  # amtool comes with it
def test_the_alertmanager_accepts_its_file_and_keeps_quiet_only_alerts_that_there_are() -> None:
    check = ["amtool", "check-config", str(ALERTMANAGER)]
    run = subprocess.run(check, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    for rule in read(ALERTMANAGER)["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            names = re.fullmatch(r'alertname=~?"([\w|]+)"', matcher)
            assert names is not None
            assert set(names[1].split("|")) <= set(alerts())


def test_grafana_finds_its_sources_and_every_dashboard() -> None:
    for folder in ("datasources", "dashboards"):
        seen = inside("grafana", f"/etc/grafana/provisioning/{folder}")
        assert seen is not None
        assert seen.resolve() == PROVISIONING / folder
    files = sorted((PROVISIONING / "datasources").iterdir())
    sources = [source for file in files for source in read(file)["datasources"]]
    for source in sources:
        assert urlsplit(source["url"]).hostname == source["type"]
        assert listens(source["url"])
    (prometheus,) = [source for source in sources if source.get("isDefault")]
    assert prometheus["type"] == "prometheus"
    interval = read(PROMETHEUS)["global"]["scrape_interval"]
    assert prometheus["jsonData"]["timeInterval"] == interval
    assert len({source["uid"] for source in sources}) == len(sources) == 3
    (provider,) = read(PROVISIONING / "dashboards" / "headway.yml")["providers"]
    seen = inside("grafana", provider["options"]["path"])
    assert seen is not None
    assert sorted(seen.resolve().rglob("*.json")) == sorted(BOARDS.values())
    asked = {
        variable["query"]
        for board in BOARDS.values()
        for variable in json.loads(board.read_text())["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert asked <= {source["type"] for source in sources}


def test_promtail_finds_in_a_line_what_it_looks_for_and_sends_it_to_loki() -> None:
    """A line as the driver json-file writes it, and in it one that a worker wrote."""
    config = read(PROMTAIL)
    (job,) = config["scrape_configs"]
    path = job["static_configs"][0]["labels"]["__path__"]
    assert path == "/var/lib/docker/containers/*/*-json.log"
    (client,) = config["clients"]
    assert listens(client["url"])
    assert urlsplit(client["url"]).port == read(LOKI)["server"]["http_listen_port"]

    def stages(kind: str) -> list[dict[str, Any]]:
        return [stage[kind] for stage in job["pipeline_stages"] if kind in stage]

    record = logging.LogRecord("headway", logging.WARNING, "", 0, "Service mail goes on", (), None)
    label = services()["parsing"]["logging"]["options"]["labels"]
    line: dict[str, Any] = {
        "log": JsonFormatter().format(record) + "\n",
        "stream": "stderr",
        "attrs": {label: "parsing"},
        "time": "2030-01-01T00:00:00.000000001Z",
    }
    outer, inner = stages("json")
    assert {name: _found(line, path) for name, path in outer["expressions"].items()} == {
        "line": line["log"],
        "time": line["time"],
        "stream": "stderr",
        "service": "parsing",
    }
    assert inner["source"] == "line"
    assert _found(json.loads(line["log"]), inner["expressions"]["level"]) == "WARNING"
    assert [set(each) for each in stages("labels")] == [{"stream", "service"}, {"level"}]


def _found(line: Any, path: str) -> Any:
    for word in re.findall(r'"[^"]+"|[^."]+', path):
        line = line[word.strip('"')]
    return line


def test_what_is_kept_is_kept_on_volumes() -> None:
    """A path in a configuration that no volume holds would be gone with its container."""
    kept = [
        ("loki", read(LOKI)["common"]["path_prefix"]),
        ("promtail", read(PROMTAIL)["positions"]["filename"].rpartition("/")[0]),
        *(
            (name, re.sub(r"^--storage\.(tsdb\.)?path=", "", word))
            for name in ("prometheus", "alertmanager")
            for word in services()[name]["command"]
            if re.match(r"--storage\.(tsdb\.)?path=", word)
        ),
    ]
    assert len(kept) == 4
    for name, folder in kept:
        volumes = dict(reversed(each.split(":")[:2]) for each in services()[name]["volumes"])
        assert "/" not in volumes[folder]
