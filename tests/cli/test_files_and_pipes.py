"""Where commands write: files as they should be, devices that are full, readers that are gone."""

import json
import os
import resource
import socket
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.offices import Office
from tests.cli.shops import COMMAND, ENVIRONMENT, ShopFile

GONE = 141


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    shop = ShopFile(tmp_path)
    shop.fill(*({"bad": f"archive-{n}"} for n in range(3)))
    shop.put("messages", "a", status="failed_max_retries", text="x")
    return shop


@pytest.fixture(params=["failed export parsing", "documents export messages"])
def export(request: pytest.FixtureRequest) -> list[str]:
    words: list[str] = request.param.split()
    return words


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_export_is_for_its_owner_only_and_a_link_is_followed(
    shop: ShopFile, export: list[str]
) -> None:
    elsewhere = shop.folder / "elsewhere"
    elsewhere.mkdir()
    target, link = elsewhere / "real.jsonl", shop.folder / "link.jsonl"
    link.symlink_to("elsewhere/real.jsonl")
    assert shop.typed(*export, "--output", "link.jsonl").returncode == 0  # it names nothing yet
    assert lines(target)
    refused = shop.typed(*export, "--output", "link.jsonl")
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)
    target.write_text("old")
    target.chmod(0o644)
    assert shop.typed(*export, "--output", "link.jsonl", "--force").returncode == 0
    assert link.is_symlink()
    assert lines(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [each.name for each in elsewhere.iterdir()] == ["real.jsonl"]


def special(folder: Path, kind: str) -> Path:
    path = folder / kind
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        case "folder":
            path.mkdir()
        case "device":
            try:
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))  # a /dev/full of our own
            except OSError as error:
                pytest.skip(f"NOT TESTED! Devices cannot be made here: {error}")
        case "link to a device":
            path.symlink_to(special(folder, "device").name)
        case "link to the database":
            path.symlink_to("headway.db")
        case "link to standard output":
            path.symlink_to("/proc/self/fd/1")
    return path


@pytest.mark.parametrize(
    "kind",
    [
        *("pipe", "socket", "folder", "device", "link to a device", "link to standard output"),
        *("headway.db", "headway.db-wal", "headway.db-now", "link to the database"),
    ],
)
def test_what_is_no_file_or_a_database_is_not_replaced_even_by_force(
    shop: ShopFile, export: list[str], kind: str
) -> None:
    path = special(shop.folder, kind)
    before = path.lstat() if os.path.lexists(path) else None
    done = shop.typed(*export, "--output", kind, "--force")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert f"--output '{kind}'" in done.stderr
    assert before is None or path.lstat().st_ino == before.st_ino
    assert not [each for each in shop.folder.iterdir() if each.name.endswith(".part")]
    assert shop.typed(*export, "--output", "-").stdout


def test_an_unset_variable_names_no_engine_no_event_and_no_document(shop: ShopFile) -> None:
    for words in (
        ("failed", "purge", "parsing", "--limit", "1", "--yes", "--bus", ""),
        ("publish", "ArchiveIngested", "{}", "--event-id", ""),
        ("failed", "list", "--bus", "sqlite:///."),
        *(("documents", verb, "messages", "") for verb in ("reset", "archive", "restore")),
        ("documents", "purge", "messages", "", "--yes"),
        ("documents", "export", "messages", ""),
    ):
        done = shop.typed(*words)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done
    assert len(shop.typed("failed", "export", "parsing").stdout.splitlines()) == 3
    assert [each["status"] for each in shop.documents("messages")] == ["failed_max_retries"]


def run(folder: Path, words: Sequence[str], **streams: Any) -> "subprocess.CompletedProcess[bytes]":
    usual: dict[str, Any] = {"env": ENVIRONMENT, "cwd": folder, "stdin": subprocess.DEVNULL}
    return subprocess.run([*COMMAND, *words], timeout=100, check=False, **{**usual, **streams})


def test_a_disk_that_is_full_leaves_the_old_file(shop: ShopFile, export: list[str]) -> None:
    target = shop.folder / "out.jsonl"
    target.write_text("old")
    done = run(
        shop.folder,
        [*export, "--output", "out.jsonl", "--force"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20)),
        capture_output=True,
        # Python would cut its own compiled modules short, and no other process could load them.
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done
    assert target.read_text() == "old"
    assert not [each for each in shop.folder.iterdir() if each.name.endswith(".part")]


# Standard output. The whole process takes part: these are the descriptors that it ends with.

LOOKS = ["--help", "failed list", "failed export parsing", "verify", "publish ArchiveIngested {}"]
CHANGES = [
    "failed requeue parsing",
    "documents reset messages --all",
    "order drain k --yes --sequences sqlite:///headway.db",
]


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> ShopFile:
    shop = ShopFile(tmp_path_factory.mktemp("shop"))
    shop.fill(*({"bad": f"archive-{n}"} for n in range(3)))
    return shop


def broken(how: str) -> int:
    """Give a descriptor that takes nothing: its device is full, or its reader is gone."""
    if how == "full":
        return os.open("/dev/full", os.O_WRONLY)
    reads, writes = os.pipe()
    os.close(reads)
    return writes


@pytest.mark.parametrize("command", LOOKS)
@pytest.mark.parametrize(("how", "code"), [("full", 2), ("gone", GONE)])
def test_a_full_device_is_one_line_and_a_reader_that_is_gone_none(
    looked_at: ShopFile, command: str, how: str, code: int
) -> None:
    output = broken(how)
    done = run(looked_at.folder, command.split(), stdout=output, stderr=subprocess.PIPE)
    os.close(output)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, how == "full"), done


def test_the_first_line_of_a_long_export_is_enough(shop: ShopFile) -> None:
    shop.fill(*({"bad": f"archive-{n}" * 100} for n in range(300)))
    line = f"{' '.join(COMMAND)} failed export parsing | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["/bin/bash", "-c", line],
        env=ENVIRONMENT,
        cwd=shop.folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    first, code = done.stdout.splitlines()
    assert (json.loads(first)["service_name"], code, done.stderr) == ("parsing", str(GONE), "")


@pytest.mark.parametrize("command", CHANGES)
@pytest.mark.parametrize("how", ["full", "gone"])
def test_a_change_is_made_and_recorded_though_it_cannot_be_told(
    shop: ShopFile, command: str, how: str
) -> None:
    Office(shop.url).hold("k", 1, 3, family="results")
    output = broken(how)
    errors = output if how == "gone" else subprocess.PIPE
    done = run(shop.folder, command.split(), stdout=output, stderr=errors)
    os.close(output)
    assert done.returncode == (2 if how == "full" else GONE)
    noun, verb, *_ = command.split()
    if how == "full":
        said = done.stderr.decode()
        assert "Traceback" not in said
        assert f"headway {noun} history" in said.splitlines()[-1]
    where = ["--sequences", "sqlite:///headway.db"] if noun == "order" else []
    (entry,) = json.loads(shop.typed(noun, "history", "--json", *where).stdout)
    assert (entry["what"], entry["outcome"]) == (verb, "complete")
    assert entry["done"] == entry["chosen"] > 0


@pytest.mark.parametrize(("how", "code"), [("full", 2), ("gone", GONE)])
def test_an_error_that_cannot_be_told_still_has_its_exit_code(
    looked_at: ShopFile, how: str, code: int
) -> None:
    errors = broken(how)
    words = ("failed", "inspect", "nosuch")
    done = run(looked_at.folder, words, stdout=subprocess.PIPE, stderr=errors)
    os.close(errors)
    assert (done.returncode, done.stdout) == (code, b"")


def test_closed_descriptors_are_no_error(looked_at: ShopFile) -> None:
    line = f"{' '.join(COMMAND)} failed list >&- 2>&-"
    shell = ["/bin/sh", "-c", line]
    done = subprocess.run(shell, env=ENVIRONMENT, cwd=looked_at.folder, check=False)
    assert done.returncode == 0
