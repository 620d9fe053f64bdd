"""What watches the stack: its files name what is there, and fit each other."""

import json
import logging
import re
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from headway.logs import JsonFormatter
from tests.deploy.compose import FOLDER, STAGES, inside, ports, services
from tests.deploy.expressions import BOARDS, RULES, alerts
from tests.deploy.test_compose import listening, waited_for

PROMETHEUS = FOLDER / "prometheus" / "prometheus.yml"
ALERTMANAGER = FOLDER / "alertmanager" / "alertmanager.yml"
PROVISIONING = FOLDER / "grafana" / "provisioning"
LOKI = FOLDER / "loki" / "loki.yml"
PROMTAIL = FOLDER / "promtail" / "promtail.yml"


def read(file: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


def jobs() -> dict[str, dict[str, Any]]:
    return {job["job_name"]: job for job in read(PROMETHEUS)["scrape_configs"]}


def targets(configs: list[dict[str, Any]]) -> list[str]:
    return [target for config in configs for target in config["targets"]]


def test_every_service_is_scraped_where_it_shows_its_metrics() -> None:
    assert set(jobs()) == {"headway", "pushgateway", "rabbitmq"}
    assert targets(jobs()["headway"]["static_configs"]) == [f"{name}:9464" for name in STAGES]
    for job in jobs().values():
        for target in targets(job["static_configs"]):
            host, _, port = target.partition(":")
            assert int(port) in listening(host)


def test_what_was_pushed_keeps_its_job_and_rabbitmq_shows_single_queues() -> None:
    assert jobs()["pushgateway"]["honor_labels"] is True
    assert jobs()["rabbitmq"]["metrics_path"] == "/metrics/per-object"
    plugins = inside("messagebus", "/etc/rabbitmq/enabled_plugins")
    assert plugins is not None
    assert re.fullmatch(
        r"\[rabbitmq_management,rabbitmq_prometheus\]\.\n",
        plugins.read_text(),
    )


def test_all_alerts_are_loaded_and_go_to_the_alertmanager() -> None:
    (pattern,) = read(PROMETHEUS)["rule_files"]
    mounted = inside("prometheus", "/etc/prometheus/prometheus.yml")
    assert mounted is not None
    assert sorted(mounted.resolve().parent.glob(pattern)) == RULES
    (managers,) = read(PROMETHEUS)["alerting"]["alertmanagers"]
    (target,) = targets(managers["static_configs"])
    host, _, port = target.partition(":")
    assert int(port) in listening(host)
    assert host in waited_for("prometheus")


@pytest.mark.server("alertmanager")  # amtool comes with it
def test_the_alertmanager_accepts_its_file() -> None:
    run = subprocess.run(
        ["amtool", "check-config", ALERTMANAGER],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_only_alerts_that_there_are_keep_others_quiet() -> None:
    for rule in read(ALERTMANAGER)["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            names = re.fullmatch(r'alertname=~?"([\w|]+)"', matcher)
            assert names is not None
            assert set(names[1].split("|")) <= set(alerts())


def sources() -> Iterator[dict[str, Any]]:
    for file in sorted((PROVISIONING / "datasources").iterdir()):
        yield from read(file)["datasources"]


def test_grafana_finds_its_provisioning_where_it_looks() -> None:
    for folder in ("datasources", "dashboards"):
        seen = inside("grafana", f"/etc/grafana/provisioning/{folder}")
        assert seen is not None
        assert seen.resolve() == PROVISIONING / folder
        assert {file.suffix for file in seen.iterdir()} == {".yml"}


def test_grafana_asks_those_who_are_there() -> None:
    for source in sources():
        url = urlsplit(source["url"])
        assert url.hostname == source["type"]
        assert url.port in listening(source["type"])
    assert [source["type"] for source in sources() if source.get("isDefault")] == ["prometheus"]
    uids = [source["uid"] for source in sources()]
    assert len(set(uids)) == len(uids) == 3


def test_grafana_loads_every_dashboard_and_has_what_they_ask() -> None:
    (provider,) = read(PROVISIONING / "dashboards" / "headway.yml")["providers"]
    assert provider["type"] == "file"
    seen = inside("grafana", provider["options"]["path"])
    assert seen is not None
    assert sorted(seen.resolve().rglob("*.json")) == sorted(BOARDS.values())
    asked = {
        variable["query"]
        for board in BOARDS.values()
        for variable in json.loads(board.read_text())["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert asked <= {source["type"] for source in sources()}


def test_grafana_takes_rates_over_the_interval_at_which_is_scraped() -> None:
    (prometheus,) = [source for source in sources() if source["type"] == "prometheus"]
    interval = read(PROMETHEUS)["global"]["scrape_interval"]
    assert prometheus["jsonData"]["timeInterval"] == interval


def stages(kind: str) -> list[dict[str, Any]]:
    (job,) = read(PROMTAIL)["scrape_configs"]
    return [stage[kind] for stage in job["pipeline_stages"] if kind in stage]


def test_promtail_reads_what_docker_writes_and_sends_it_to_loki() -> None:
    (job,) = read(PROMTAIL)["scrape_configs"]
    (config,) = job["static_configs"]
    assert config["labels"]["__path__"] == "/var/lib/docker/containers/*/*-json.log"
    assert "/var/lib/docker/containers" in {
        each.split(":")[1] for each in services()["promtail"]["volumes"]
    }
    (client,) = read(PROMTAIL)["clients"]
    url = urlsplit(client["url"])
    assert (url.hostname, url.path) == ("loki", "/loki/api/v1/push")
    assert url.port == read(LOKI)["server"]["http_listen_port"]
    assert url.port in listening("loki")


def test_promtail_finds_in_a_line_what_it_looks_for() -> None:
    """A line as the driver json-file writes it, and in it one that a worker wrote."""
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
    labels = [set(each) for each in stages("labels")]
    assert labels == [{"stream", "service"}, {"level"}]
    (timestamp,), (output,) = stages("timestamp"), stages("output")
    assert (timestamp["source"], output["source"]) == ("time", "line")


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


def test_loki_and_promtail_are_for_the_stack_only() -> None:
    assert ports("loki") == ports("promtail") == []
