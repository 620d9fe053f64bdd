"""Systems are built of what any program may use, and none knows another."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
SYSTEMS = sorted(each for each in (SRC / "headway" / "systems").iterdir() if each.is_dir())
MODULES = [module for system in SYSTEMS for module in sorted(system.rglob("*.py"))]

FREE = ("headway.testing.", "headway.ports.")
"""Shipped for users: tools for tests, and what an adapter of one's own has to keep to."""

PLACES = {
    "headway.adapters.arroyo": "results from Kafka",
    "headway.adapters.celery": "tasks of a system's own, run later",
    "headway.adapters.logs": "how logs are written (documented), and what a resequencer tells",
    "headway.adapters.prometheus": "the metrics of Headway (documented), and of one's own",
    "headway.adapters.sqlite.tables": "tables of one's own in a file of Headway's",
    "headway.adapters.system": "the real clock and chance",
    "headway.assembly.http_guard": "refuses pages of other sites and slow senders",
    "headway.assembly.http_server": "listens, and stops when told to",
    "headway.assembly.metrics_server": "serves /metrics and /health",
    "headway.assembly.retrying": "the clock and the chance of the house",
    "headway.assembly.sequencing": "opens the engine of sequences that a URL names",
    "headway.assembly.settings": "the one reader of the environment",
    "headway.core.catalogue": "rules for errors (documented)",
    "headway.core.engine_url": "URLs refused in the same words",
    "headway.core.extras": "says which extra is missing, in the same words",
    "headway.core.facts": "what workers tell an observer (documented)",
    "headway.core.metric": "what a catalogue of metrics consists of",
    "headway.core.parsing": "settings read and refused in the same words",
    "headway.core.secrets": "settings shown without passwords",
    "headway.core.sequence_answers": "what a resequencer hands out",
    "headway.core.sequence_facts": "what a resequencer tells",
    "headway.core.sequence_state": "why a gap was given up",
    "headway.core.showing": "text from outside, made fit for one line",
    "headway.runtime.resequencer": "the resequencer that takes batches",
    "headway.runtime.sequence_fates": "what it takes, and what became of it",
    "headway.runtime.sequence_reach": "tells an engine that is away from other errors",
    "headway.runtime.sequence_watchers": "tells several watchers",
}
"""All other modules and packages that systems may use, and for what. Whoever adds one says why."""


def imported(module: Path) -> Iterator[tuple[str, str]]:
    """Give the modules of ours that a module imports from, and the names."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} imports by dots"
            for alias in node.names:
                yield str(node.module), alias.name
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def inner(module: Path) -> set[str]:
    """Give the places inside Headway that a module of a system uses."""
    own = f"headway.systems.{module.relative_to(SRC / 'headway' / 'systems').parts[0]}"
    found = {place for place, _ in imported(module) if place.startswith("headway.")}
    return {
        place
        for place in found
        if not place.startswith(FREE) and place != own and not place.startswith(f"{own}.")
    }


def listed(place: str) -> list[str]:
    return [each for each in PLACES if f"{place}.".startswith(f"{each}.")]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(SRC)))
def test_a_system_uses_public_names_and_the_places_that_are_listed(module: Path) -> None:
    unknown = {place for place in inner(module) if not listed(place)}
    assert not unknown, (
        f"{module.relative_to(SRC)} uses {', '.join(sorted(unknown))}: use names of headway, "
        "or give that place a public form"
    )


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(SRC)))
def test_a_system_uses_nothing_that_is_private_elsewhere(module: Path) -> None:
    private = {
        f"{place}.{name}"
        for place, name in imported(module)
        if place.split(".")[0] == "headway" and name.startswith("_")
    }
    assert not private


def test_every_place_on_the_list_is_used() -> None:
    used = {each for module in MODULES for place in inner(module) for each in listed(place)}
    assert sorted(PLACES.keys() - used) == []
