"""The Dockerfiles: what they copy is there, what they install exists, and nobody is root."""

import fnmatch
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.compose import FOLDER, ROOT, dockerfile, instructions, ours

FILES = sorted(file for file in (FOLDER / "docker").iterdir() if not file.name.endswith("ignore"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def extras(file: Path) -> set[str]:
    (install,) = [rest for word, rest in instructions(file) if "pip install" in rest]
    (names,) = re.findall(r"'\.\[([\w,]+)\]'", install)
    return set(names.split(","))


def copied(file: Path) -> list[str]:
    return [
        source
        for word, rest in instructions(file)
        if word == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    ]


def test_every_dockerfile_is_used() -> None:
    assert {dockerfile(name) for name in ours()} == set(FILES)
    assert [file.name for file in FILES] == ["Dockerfile", "Dockerfile.retry-job"]


@pytest.mark.parametrize("name", ours())
def test_the_context_is_the_repository(name: str) -> None:
    assert (FOLDER / ours()[name]["build"]["context"]).resolve() == ROOT


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_whatever_is_copied_is_there_and_not_ignored(file: Path) -> None:
    ignore = file.with_name(f"{file.name}.dockerignore").read_text().splitlines()
    rules = [line for line in ignore if line and not line.startswith("#")]
    assert copied(file)
    for source in copied(file):
        assert (ROOT / source).exists()
        last = [rule for rule in rules if fnmatch.fnmatch(source, rule.lstrip("!"))][-1]
        assert last == f"!{source}"
    assert {rule.lstrip("!") for rule in rules if rule.startswith("!")} == set(copied(file))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_the_build_of_the_package_needs_is_copied(file: Path) -> None:
    assert {"pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} <= set(
        copied(file)
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_extras_exist_and_the_engine_is_among_them(file: Path) -> None:
    assert extras(file) <= set(PROJECT["optional-dependencies"])
    assert {"cli", "rabbitmq", "mongodb", "prometheus", "consensus"} <= extras(file)
    assert ("ui" in extras(file)) is (file.name == "Dockerfile")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_is_built_in_two_stages_on_a_pinned_python_that_we_support(file: Path) -> None:
    bases = [rest.split()[0] for word, rest in instructions(file) if word == "FROM"]
    assert len(bases) == 2
    (base,) = set(bases)
    found = re.fullmatch(r"python:(3\.\d+)\.\d+-slim-\w+", base)
    assert found is not None
    assert f"Programming Language :: Python :: {found[1]}" in PROJECT["classifiers"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_runs_a_program_of_ours_and_not_as_root(file: Path) -> None:
    last = dict(instructions(file))
    assert last["ENTRYPOINT"].startswith('["headway"')
    assert "headway" in PROJECT["scripts"]
    assert last["USER"] == "headway"
    assert "useradd --uid 10001 --user-group --no-create-home" in " ".join(
        rest for word, rest in instructions(file) if word == "RUN"
    )


@pytest.mark.parametrize("name", ours())
def test_a_folder_that_is_written_to_belongs_to_the_user(name: str) -> None:
    """A volume is given the owner of the folder that the image has in its place."""
    (made,) = re.findall(
        r"install -d -o headway -g headway ([^&]+)",
        " ".join(rest for word, rest in instructions(dockerfile(name)) if word == "RUN"),
    )
    written = {each.split(":")[1] for each in ours()[name]["volumes"] if not each.endswith(":ro")}
    assert written <= set(made.split())
    assert ours()[name]["read_only"] is True
