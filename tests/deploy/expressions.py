"""The rules and the dashboard that are shipped, and what their expressions name."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from headway.core.metrics import CATALOGUE

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "headway-rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "headway-events.json"

# What we use of RabbitMQ's own names; a test asks a real one whether it has them.
RABBITMQ = {
    "rabbitmq_channel_messages_acked_total": {"channel", "vhost", "queue"},
    "rabbitmq_connections": set(),
    "rabbitmq_disk_space_available_bytes": set(),
    "rabbitmq_disk_space_available_limit_bytes": set(),
    "rabbitmq_process_resident_memory_bytes": set(),
    "rabbitmq_queue_consumers": {"vhost", "queue"},
    "rabbitmq_queue_messages": {"vhost", "queue"},
    "rabbitmq_queue_messages_ready": {"vhost", "queue"},
    "rabbitmq_queue_messages_unacked": {"vhost", "queue"},
    "rabbitmq_resident_memory_limit_bytes": set(),
}
_OF_PROMETHEUS = {"up"}
_NOT_NAMES = re.compile(
    r'"[^"]*"'  # strings
    r"|\{[^}]*\}"  # matchers
    r"|\[[^]]*\]"  # ranges
    r"|\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)"  # labels
    r"|\b[a-z_]+\s*(?=\()"  # functions
    r"|\b(?:and|or|unless|bool|offset)\b"
)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def panels() -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return shown


def targets() -> list[tuple[str, str]]:
    """Titles of panels and their expressions, with all services and queues chosen."""
    return [
        (f"{panel['title']} {target['refId']}", chosen(target["expr"]))
        for panel in panels()
        for target in panel.get("targets", ())
    ]


def chosen(expression: str) -> str:
    for variable, value in (("$__rate_interval", "1m"), ("$service", ".+"), ("$queue", ".+")):
        expression = expression.replace(variable, value)
    return expression


def names(expression: str) -> set[str]:
    """Give the metrics that an expression names."""
    bare = _NOT_NAMES.sub(" ", _NOT_NAMES.sub(" ", expression))
    return set(re.findall(r"[A-Za-z_:][\w:]*", bare))


def known() -> set[str]:
    found = (
        set(RABBITMQ) | _OF_PROMETHEUS | {rule["record"] for rule in rules() if "record" in rule}
    )
    for metric in CATALOGUE:
        ends = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {f"{metric.name}{end}" for end in ends}
    return found
