"""Runbooks: what they tell people to type can be typed, and each tier has its page."""

import re
import shlex
from typing import Any

import pytest
import typer

from tests.commands import app
from tests.deploy.expressions import alerts
from tests.deploy.test_rules import HOW_TO, RUNBOOKS

_IN_BLOCKS = re.compile(r"^ *(?:[A-Z_]+=\S+ )*(headway [^\n#|>]+)", re.MULTILINE)
_IN_WORDS = re.compile(r"`(headway [^`|]+)")
_IN_ALERTS = re.compile(r"First[^:]*: (headway [^,\n]+)")


def typed() -> set[str]:
    """Give every command that a runbook or an alert names."""
    pages = [page.read_text() for page in (HOW_TO, *RUNBOOKS.values())]
    said = [alert["annotations"]["description"] for alert in alerts().values()]
    found = {
        command.strip()
        for page in pages
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for command in _IN_BLOCKS.findall(block)
    }
    found |= {command.strip() for page in pages for command in _IN_WORDS.findall(page)}
    found -= {"headway run"}  # what runs, and not what is to be typed
    return found | {command.strip() for text in said for command in _IN_ALERTS.findall(text)}


@pytest.mark.parametrize("command", sorted(typed()))
def test_what_is_to_be_typed_is_understood(command: str) -> None:
    words = shlex.split(re.sub(r"\{\{.*?\}\}", "NAME", command))[1:]
    here: Any = typer.main.get_command(app)
    names = []
    while hasattr(here, "commands") and words:
        names.append(words.pop(0))
        assert names[-1] in here.commands, f"there is no {' '.join(names)}"
        here = here.commands[names[-1]]
    assert not hasattr(here, "commands"), f"{command} is no whole command"
    # Reads the words as a shell would give them, and carries nothing out.
    assert here.make_context(command, words).params


@pytest.mark.parametrize("tier", RUNBOOKS)
def test_a_runbook_says_when_who_and_how_soon_and_what_to_do(tier: str) -> None:
    text = RUNBOOKS[tier].read_text()
    assert text.startswith(f"# Tier {tier}: ")
    for row in ("when", "who", "how soon"):
        assert re.search(rf"^\| {row} \| \S", text, re.MULTILINE)
    steps = re.findall(r"^(\d)\. \*\*", text.partition("\n## ")[0], re.MULTILINE)
    assert len(steps) == {"1": 0, "2": 4, "3": 5, "4": 5}[tier]


def test_the_commands_were_found() -> None:
    """Or the test above would be true of nothing."""
    found = " ".join(typed())
    for verb in ("stuck", "reset", "purge", "archive", "export", "history"):
        assert f"headway documents {verb}" in found
    assert "headway sweep --once --dry-run" in found
    assert "headway failed requeue" in found
