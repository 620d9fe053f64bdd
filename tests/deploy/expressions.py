"""The rules and the dashboards that are shipped, and what their expressions name."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from headway.core.metrics import CATALOGUE
from headway.systems.uptime.metrics import CATALOGUE as UPTIME_CATALOGUE

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "deploy" / "prometheus" / "alerts").glob("*.yml"))
BOARDS = {file.stem: file for file in sorted((ROOT / "deploy" / "grafana").glob("*.json"))}
EVENTS, RETRIES, FAILED = "headway-events", "headway-retry-policy", "headway-failed-queues"
UPTIME = "headway-uptime"

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
    r"|\boffset\s+\w+"
    r"|\b(?:and|or|unless|bool)\b"
)


@cache  # reading takes a tenth of a second, and every test asks
def rules() -> list[dict[str, Any]]:
    return [
        rule
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def panels(board: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads(BOARDS[board].read_text())["panels"]
    return shown


def targets(*boards: str) -> list[tuple[str, str]]:
    """Titles of panels and their expressions, with everything chosen that can be."""
    return [
        (f"{panel['title']} {target['refId']}", chosen(target["expr"]))
        for board in boards or BOARDS
        for panel in panels(board)
        for target in panel.get("targets", ())
    ]


def chosen(expression: str) -> str:
    expression = expression.replace("$__rate_interval", "1m")
    return re.sub(r"\$(?:service|queue|collection)\b", ".+", expression)


def names(expression: str) -> set[str]:
    """Give the metrics that an expression names."""
    bare = _NOT_NAMES.sub(" ", _NOT_NAMES.sub(" ", expression))
    return set(re.findall(r"[A-Za-z_:][\w:]*", bare))


def known() -> set[str]:
    found = (
        set(RABBITMQ) | _OF_PROMETHEUS | {rule["record"] for rule in rules() if "record" in rule}
    )
    for metric in (*CATALOGUE, *UPTIME_CATALOGUE):
        ends = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {f"{metric.name}{end}" for end in ends}
    return found
