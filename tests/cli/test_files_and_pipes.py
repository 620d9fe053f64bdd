"""Where commands write: files as they should be, devices that are full, readers that are gone."""

import json
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.offices import Office
from tests.cli.shops import ShopFile

COMMAND = (sys.executable, "-m", "headway.apps.cli")
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/", "COLUMNS": "80"}
GONE = 141


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    shop = ShopFile(tmp_path)
    shop.fill(*({"bad": f"archive-{n}"} for n in range(3)))
    shop.put("messages", "a", status="failed_max_retries", text="x")
    return shop


@pytest.fixture(params=[("failed", "parsing"), ("documents", "messages")], ids=lambda p: p[0])
def export(request: pytest.FixtureRequest) -> tuple[str, ...]:
    noun, name = request.param
    return noun, "export", name


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_export_is_for_its_owner_only(shop: ShopFile, export: tuple[str, ...]) -> None:
    target = shop.folder / "out.jsonl"
    target.write_text("old")
    target.chmod(0o644)
    assert shop.typed(*export, "--output", "out.jsonl", "--force").returncode == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert lines(target)


def test_a_link_is_followed(shop: ShopFile, export: tuple[str, ...]) -> None:
    elsewhere = shop.folder / "elsewhere"
    elsewhere.mkdir()
    target, link = elsewhere / "real.jsonl", shop.folder / "link.jsonl"
    link.symlink_to("elsewhere/real.jsonl")
    assert shop.typed(*export, "--output", "link.jsonl").returncode == 0  # it names nothing yet
    assert link.is_symlink()
    assert lines(target)
    refused = shop.typed(*export, "--output", "link.jsonl")
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)
    target.write_text("old")
    assert shop.typed(*export, "--output", "link.jsonl", "--force").returncode == 0
    assert link.is_symlink()
    assert lines(target)
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
    return path


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device", "link to a device"])
def test_what_is_no_file_is_refused_and_stays(
    shop: ShopFile, export: tuple[str, ...], kind: str
) -> None:
    path = special(shop.folder, kind)
    before = path.lstat()
    done = shop.typed(*export, "--output", kind, "--force")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"headway: Invalid --output '{kind}': it is a ")
    assert len(done.stderr.splitlines()) == 1
    assert stat.S_IFMT(path.lstat().st_mode) == stat.S_IFMT(before.st_mode)
    assert not [each for each in shop.folder.iterdir() if each.name.endswith(".part")]


@pytest.mark.parametrize("name", ["headway.db", "headway.db-wal", "headway.db-now", "link"])
def test_a_database_is_not_replaced_even_by_force(
    shop: ShopFile, export: tuple[str, ...], name: str
) -> None:
    (shop.folder / "link").symlink_to("headway.db")
    done = shop.typed(*export, "--output", name, "--force")
    assert done.returncode == 2
    assert "belongs to an SQLite database" in done.stderr
    assert shop.typed(*export, "--output", "out.jsonl").returncode == 0
    assert lines(shop.folder / "out.jsonl")


def test_an_unset_variable_names_no_engine_and_no_event(shop: ShopFile) -> None:
    for words in (
        ("failed", "purge", "parsing", "--limit", "1", "--yes", "--bus", ""),
        ("publish", "ArchiveIngested", "{}", "--event-id", ""),
        ("failed", "list", "--bus", "sqlite:///."),
    ):
        done = shop.typed(*words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done
    assert shop.typed("failed", "export", "parsing", "--output", "out.jsonl").returncode == 0
    assert len(lines(shop.folder / "out.jsonl")) == 3


def test_standard_output_by_its_file_name_is_refused_with_the_cure(shop: ShopFile) -> None:
    # As /dev/stdout is: a link of our own, for if this fails it is replaced.
    (shop.folder / "stdout").symlink_to("/proc/self/fd/1")
    done = shop.typed("failed", "export", "parsing", "--output", "stdout", "--force")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Use - for standard output" in done.stderr
    assert len(shop.typed("failed", "export", "parsing", "--output", "-").stdout.splitlines()) == 3


def test_a_disk_that_is_full_leaves_the_old_file(shop: ShopFile, export: tuple[str, ...]) -> None:
    target = shop.folder / "out.jsonl"
    target.write_text("old")
    done = subprocess.run(
        [*COMMAND, *export, "--output", "out.jsonl", "--force"],
        env=ENV,
        cwd=shop.folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 3, done
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert target.read_text() == "old"
    assert not [each for each in shop.folder.iterdir() if each.name.endswith(".part")]


# Standard output

LOOKS = [
    ("--help",),
    ("--version",),
    ("failed", "list"),
    ("failed", "inspect", "parsing"),
    ("failed", "export", "parsing"),
    ("failed", "requeue", "parsing", "--dry-run"),
    ("documents", "stuck", "messages"),
    ("documents", "export", "messages"),
    ("order", "status", "--sequences", "sqlite:///headway.db"),
    ("verify",),
    ("config", "show"),
    ("publish", "ArchiveIngested", "{}"),
]
CHANGES = [
    ("failed", "purge", "parsing", "--yes"),
    ("failed", "requeue", "parsing"),
    ("documents", "reset", "messages", "--all"),
    ("documents", "archive", "messages", "a"),
    ("documents", "purge", "messages", "a", "--yes"),
    ("order", "drain", "k", "--yes", "--sequences", "sqlite:///headway.db"),
]


def named(words: Sequence[str]) -> str:
    return " ".join(words[:3])


def run(folder: Path, words: Sequence[str], **streams: Any) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, *words],
        env=ENV,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        timeout=100,
        check=False,
        **streams,
    )


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> ShopFile:
    shop = ShopFile(tmp_path_factory.mktemp("shop"))
    shop.fill(*({"bad": f"archive-{n}"} for n in range(3)))
    shop.put("messages", "a", status="failed_max_retries")
    Office(shop.url).hold("k", 1, 3, family="results")
    return shop


@pytest.mark.parametrize("words", LOOKS, ids=named)
def test_a_full_device_is_said_in_one_line(looked_at: ShopFile, words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 (no file)
        done = run(looked_at.folder, words, stdout=full, stderr=subprocess.PIPE)
    said = done.stderr.decode()
    assert said.splitlines()[-1:] == [
        "headway: Cannot write to standard output: No space left on device."
    ]
    assert "Traceback" not in said
    assert done.returncode == 2


@pytest.mark.parametrize("words", LOOKS, ids=named)
def test_a_reader_that_is_gone_ends_the_command_silently(
    looked_at: ShopFile, words: tuple[str, ...]
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = run(looked_at.folder, words, stdout=writes, stderr=subprocess.PIPE)
    os.close(writes)
    assert (done.stderr.decode(), done.returncode) == ("", GONE)


def test_the_first_line_of_a_long_export_is_enough(shop: ShopFile) -> None:
    shop.fill(*({"bad": f"archive-{n}" * 100} for n in range(300)))
    command = f"{sys.executable} -m headway.apps.cli failed export parsing"
    line = f"{command} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["/bin/bash", "-c", line],
        env=ENV,
        cwd=shop.folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    first, code = done.stdout.splitlines()
    assert (json.loads(first)["service_name"], code, done.stderr) == ("parsing", str(GONE), "")


@pytest.mark.parametrize("words", CHANGES, ids=named)
@pytest.mark.parametrize("how", ["full", "all gone"])
def test_a_change_is_made_and_recorded_though_it_cannot_be_told(
    shop: ShopFile, words: tuple[str, ...], how: str
) -> None:
    Office(shop.url).hold("k", 1, 3, family="results")
    reads, writes = os.pipe()
    os.close(reads)
    if how == "full":
        os.close(writes)
        writes = os.open("/dev/full", os.O_WRONLY)
    errors: Any = writes if how == "all gone" else subprocess.PIPE
    done = run(shop.folder, words, stdout=writes, stderr=errors)
    os.close(writes)
    assert done.returncode == (2 if how == "full" else GONE)
    said = (done.stderr or b"").decode()
    assert "Traceback" not in said
    if how == "full":
        assert "The change is made and recorded: headway " in said.splitlines()[-1]
    where = ["--sequences", "sqlite:///headway.db"] if words[0] == "order" else []
    shown = run(shop.folder, [words[0], "history", "--json", *where], stdout=subprocess.PIPE)
    (entry,) = json.loads(shown.stdout)
    assert (entry["what"], entry["outcome"]) == (words[1], "complete")
    assert entry["done"] == entry["chosen"] > 0


@pytest.mark.parametrize("how", ["full", "gone"])
def test_an_error_that_cannot_be_said_still_has_its_exit_code(shop: ShopFile, how: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    full = os.open("/dev/full", os.O_WRONLY)
    broken = full if how == "full" else writes
    words = ("failed", "inspect", "nosuch")
    done = run(shop.folder, words, stdout=subprocess.PIPE, stderr=broken)
    assert (done.returncode, done.stdout) == (2 if how == "full" else GONE, b"")
    os.close(writes)
    os.close(full)


def test_closed_descriptors_are_no_error(looked_at: ShopFile) -> None:
    line = f"{sys.executable} -m headway.apps.cli failed list >&- 2>&-"
    done = subprocess.run(["/bin/sh", "-c", line], env=ENV, cwd=looked_at.folder, check=False)
    assert done.returncode == 0
