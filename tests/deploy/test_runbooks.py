"""Runbooks: what they tell people to type can be typed, and each tier has its page."""

import re
import shlex
from typing import Any

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


def test_what_is_to_be_typed_is_understood() -> None:
    commands = typed()
    for verb in ("stuck", "reset", "purge", "archive", "export", "history"):
        assert any(command.startswith(f"headway documents {verb}") for command in commands)
    for command in commands:
        words = shlex.split(re.sub(r"\{\{.*?\}\}", "NAME", command))[1:]
        here: Any = typer.main.get_command(app)
        while hasattr(here, "commands") and words:
            assert words[0] in here.commands, f"there is no {command}"
            here = here.commands[words.pop(0)]
        assert not hasattr(here, "commands"), f"{command} is no whole command"
        # Reads the words as a shell would give them, and carries nothing out.
        assert here.make_context(command, words).params
