"""The alerts that are shipped: promtool's cases, and what every alert has to say."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.core.sweep_metrics import SWEEPS
from tests.deploy.expressions import ROOT, RULES, alerts, known, names, rules

FOLDER = Path(__file__).parent
CASES = sorted(FOLDER.glob("*.test.yml"))
DOCS = ROOT / "docs"
HOW_TO = DOCS / "how-to" / "alert-and-watch.md"
RUNBOOKS = {str(tier): DOCS / "runbooks" / f"tier-{tier}.md" for tier in (1, 2, 3, 4)}
_FIRING = re.compile(r'ALERTS\{alertname="(\w+)",alertstate="firing"')


def promtool(*arguments: str | Path) -> tuple[int, str]:
    run = subprocess.run(
        ["promtool", *arguments],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout + run.stderr


@cache
def expectations() -> list[tuple[str, list[dict[str, Any]]]]:
    """Give what the cases expect: an alert, and the samples of it that fire."""
    return [
        (alert[1], asked["exp_samples"])
        for file in CASES
        for case in yaml.safe_load(file.read_text())["tests"]
        for asked in case["promql_expr_test"]
        if (alert := _FIRING.match(asked["expr"]))
    ]


@pytest.mark.server("prometheus")  # promtool comes with it
def test_promtool_accepts_the_rules_and_the_example_that_loads_them() -> None:
    code, said = promtool("check", "rules", "--lint-fatal", *RULES)
    assert code == 0, said
    code, said = promtool("check", "config", ROOT / "deploy" / "prometheus" / "prometheus.yml")
    assert code == 0, said


@pytest.mark.server("prometheus")
@pytest.mark.parametrize("file", CASES, ids=lambda file: file.name)
def test_alerts_fire_when_they_should_and_not_just_below(file: Path) -> None:
    code, said = promtool("test", "rules", file)
    assert code == 0, said


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_has_its_cases_and_names_only_labels_that_it_has(alert: str) -> None:
    cases = [samples for name, samples in expectations() if name == alert]
    assert {bool(samples) for samples in cases} == {True, False}
    texts = " ".join(alerts()[alert]["annotations"].values())
    named = set(re.findall(r"\$labels\.(\w+)", texts))
    for sample in (sample for samples in cases for sample in samples):
        assert named <= set(re.findall(r'(\w+)="', sample["labels"]))


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_has_a_first_command_and_a_page_to_read_on(alert: str) -> None:
    labels, said = alerts()[alert]["labels"], alerts()[alert]["annotations"]
    assert labels["severity"] in {"warning", "critical"}
    assert said["summary"]
    first = re.findall(r"First[^:]*: (headway|curl|rabbitmq-diagnostics) ", said["description"])
    assert len(first) == 1
    page, _, anchor = said["runbook_url"].partition("#")
    assert ROOT / page == (RUNBOOKS[labels["tier"]] if "tier" in labels else HOW_TO)
    assert anchor == alert.lower()
    assert f"\n## {alert}\n" in (ROOT / page).read_text()


def test_rules_name_only_metrics_that_there_are_and_take_no_rate_of_a_gauge() -> None:
    for rule in rules():
        named = names(rule["expr"])
        assert named
        assert named <= known()
        rated = re.findall(r"\b(?:i?rate|increase)\(([\w:]+)", rule["expr"])
        assert all(metric.endswith(("_total", "_bucket")) for metric in rated)


def test_gauges_that_can_be_unknown_are_kept_known_in_the_same_way() -> None:
    """The cases show it for one; no alert looks at a gauge that may be NaN by itself."""
    kept = {
        rule["record"].split(":")[1]: rule["expr"]
        for rule in rules()
        if rule.get("record", "").endswith(":known")
    }
    nullable = {
        metric.name for metric in SWEEPS if metric.kind == "gauge" and "NaN: " in metric.meaning
    }
    assert set(kept) == nullable
    assert len({expression.replace(name, "NAME") for name, expression in kept.items()}) == 1
    for alert in alerts().values():
        assert not names(alert["expr"]) & nullable


def test_the_pages_know_no_alert_that_is_not_there() -> None:
    texts = "\n".join(page.read_text() for page in (HOW_TO, *RUNBOOKS.values()))
    assert set(re.findall(r"^## ([A-Z][a-z]+[A-Z]\w+)$", texts, re.MULTILINE)) == set(alerts())
    tiers = {alert["labels"]["tier"] for alert in alerts().values() if "tier" in alert["labels"]}
    assert tiers == set(RUNBOOKS)
