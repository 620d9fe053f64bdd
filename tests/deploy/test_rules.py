"""The alerts that are shipped: promtool's cases, and what every alert has to say."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.expressions import ROOT, RULES, alerts, known, names, rules

FOLDER = Path(__file__).parent
CASES = sorted(FOLDER.glob("*.test.yml"))
RUNBOOK = ROOT / "docs" / "how-to" / "alert-and-watch.md"
_FIRING = re.compile(r'ALERTS\{alertname="(\w+)",alertstate="firing"')


def promtool(*arguments: str | Path) -> tuple[int, str]:
    run = subprocess.run(
        ["promtool", *arguments],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout + run.stderr


def expectations() -> list[tuple[str, list[dict[str, Any]]]]:
    """Give what the cases expect: an alert, and the samples of it that fire."""
    return [
        (_FIRING.match(asked["expr"])[1], asked["exp_samples"])  # type: ignore[index]
        for file in CASES
        for case in yaml.safe_load(file.read_text())["tests"]
        for asked in case["promql_expr_test"]
    ]


@pytest.mark.server("prometheus")  # promtool comes with it
def test_promtool_accepts_the_rules_and_the_example_that_loads_them() -> None:
    code, said = promtool("check", "rules", "--lint-fatal", RULES)
    assert code == 0, said
    code, said = promtool("check", "config", RULES.with_name("prometheus.yml"))
    assert code == 0, said


@pytest.mark.server("prometheus")
@pytest.mark.parametrize("file", CASES, ids=lambda file: file.name)
def test_alerts_fire_when_they_should_and_not_just_below(file: Path) -> None:
    code, said = promtool("test", "rules", file)
    assert code == 0, said


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_has_a_case_where_it_fires_and_one_where_it_does_not(alert: str) -> None:
    outcomes = {bool(samples) for name, samples in expectations() if name == alert}
    assert outcomes == {True, False}


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_names_only_labels_that_it_has(alert: str) -> None:
    texts = " ".join(alerts()[alert]["annotations"].values())
    named = set(re.findall(r"\$labels\.(\w+)", texts))
    everywhere = [
        set(re.findall(r'(\w+)="', sample["labels"]))
        for name, samples in expectations()
        if name == alert
        for sample in samples
    ]
    assert named <= set.intersection(*everywhere)


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_says_what_is_wrong_the_first_command_and_where_to_read_on(alert: str) -> None:
    rule = alerts()[alert]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    said = rule["annotations"]
    assert said["summary"]
    (command,) = re.findall(
        r"First[^:]*: (headway|curl|rabbitmq-diagnostics) ", said["description"]
    )
    assert command
    page, _, anchor = said["runbook_url"].partition("#")
    assert ROOT / page == RUNBOOK
    assert anchor == alert.lower()
    assert f"\n## {alert}\n" in RUNBOOK.read_text()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_names_only_metrics_that_there_are(rule: dict[str, Any]) -> None:
    named = names(rule["expr"])
    assert named
    assert named <= known()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_no_rule_takes_a_rate_of_a_gauge(rule: dict[str, Any]) -> None:
    rated = re.findall(r"\b(?:i?rate|increase)\(([\w:]+)", rule["expr"])
    assert all(metric.endswith(("_total", "_bucket")) for metric in rated)


def test_the_runbook_knows_no_alert_that_is_not_there() -> None:
    assert set(re.findall(r"^## (Headway\w+)$", RUNBOOK.read_text(), re.MULTILINE)) == set(alerts())
