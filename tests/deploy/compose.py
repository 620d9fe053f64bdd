"""The compose file and its Dockerfiles as an engine would read them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy"
FILE = FOLDER / "compose.yaml"
PAGE = ROOT / "docs" / "how-to" / "run-the-stack.md"
STAGES = (
    "ingestion",
    "parsing",
    "chunking",
    "embedding",
    "orchestrator",
    "summarization",
    "reporting",
)
_VARIABLE = re.compile(r"\$\$|\$\{(\w+):-([^}]*)\}")


@cache
def variables() -> dict[str, set[str]]:
    """Give what the file takes from the environment, and the defaults that it has for each."""
    found: dict[str, set[str]] = {}
    for name, default in _VARIABLE.findall(_without_comments()):
        if name:
            found.setdefault(name, set()).add(default)
    return found


def _without_comments() -> str:
    return re.sub(r"(^|\s)#.*$", "", FILE.read_text(), flags=re.MULTILINE)


@cache
def compose() -> dict[str, Any]:
    """Give the file with every default filled in."""
    read: dict[str, Any] = _filled(yaml.safe_load(FILE.read_text()))
    return read


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def ours() -> dict[str, dict[str, Any]]:
    """Give the services that run Headway."""
    return {name: service for name, service in services().items() if "build" in service}


def _filled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each) for each in value]
    if not isinstance(value, str):
        return value
    filled = _VARIABLE.sub(lambda found: found[2] if found[1] else "$", value)
    assert "${" not in filled, f"{value} has no default"
    return filled


@dataclass(frozen=True)
class Mount:
    """A folder or a file of the container, and where it comes from."""

    source: str
    target: str

    @property
    def is_named(self) -> bool:
        return "/" not in self.source

    @property
    def path(self) -> Path:
        return FOLDER / self.source


def mounts(service: str) -> list[Mount]:
    return [Mount(*each.split(":")[:2]) for each in services()[service].get("volumes", [])]


def inside(service: str, path: str) -> Path | None:
    """Give the file of this repository that a container sees under a path."""
    for mount in sorted(mounts(service), key=lambda each: len(each.target), reverse=True):
        if PurePosixPath(path).is_relative_to(mount.target):
            rest = PurePosixPath(path).relative_to(mount.target)
            return None if mount.is_named else mount.path / rest
    return None


def ports(service: str) -> list[tuple[str, int, int]]:
    """Give the address, the port of this machine and the one of the container."""
    found = []
    for each in services()[service].get("ports", []):
        address, outer, inner = each.rsplit(":", 2)
        found.append((address, int(outer), int(inner)))
    return found


def dockerfile(service: str) -> Path:
    build = ours()[service]["build"]
    file: Path = (FOLDER / build["context"] / build["dockerfile"]).resolve()
    return file


def instructions(file: Path) -> list[tuple[str, str]]:
    """Give a Dockerfile line by line, as instruction and the rest, without comments."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (word, re.sub(r"\s+", " ", rest))
        for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)
    ]


def words(service: str, *given: str) -> list[str]:
    """Give the command line of a service of ours; what is given stands for its command."""
    last = dict(instructions(dockerfile(service)))  # of equal instructions the last one counts
    entry: list[str] = ours()[service].get("entrypoint") or yaml.safe_load(last["ENTRYPOINT"])
    usual: list[str] = ours()[service].get("command", [])
    return [*entry, *(given or usual)]
