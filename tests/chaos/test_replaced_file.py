"""The database file or its log is replaced or removed under a running worker."""

import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headway.assembly.supervising import CANNOT_START
from tests.chaos.running import Site

LOG = ("-wal", "-shm")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def beside(site: Site, suffix: str) -> Path:
    return site.database.with_name(site.database.name + suffix)


def restore_backup(site: Site) -> None:
    """Put another file in the place of the one that is in use."""
    backup = site.folder / "backup.db"
    with closing(sqlite3.connect(site.database)) as old, closing(sqlite3.connect(backup)) as new:
        old.backup(new)
        new.execute("delete from headway_workers")
        new.commit()
    # At no moment is there no file: a worker that looked then would say that it was removed.
    (site.folder / "old.db").hardlink_to(site.database)
    backup.replace(site.database)
    for suffix in LOG:
        beside(site, suffix).rename(site.folder / f"old.db{suffix}")


def remove(site: Site) -> None:
    site.database.unlink()


def remove_log(site: Site) -> None:
    beside(site, "-wal").unlink()


def remove_log_and_index(site: Site) -> None:
    for suffix in LOG:
        beside(site, suffix).unlink()


FAULTS: list[tuple[Callable[[Site], None], str, str]] = [
    (restore_backup, "headway.db' was replaced by another file", "start them again"),
    (remove, "headway.db' was removed", "start them again"),
    (remove_log, "headway.db-wal' was removed", "commits may be lost"),
    (remove_log_and_index, "headway.db-wal' was removed", "commits may be lost"),
]


def ended(process: "subprocess.Popen[bytes]") -> int:
    """Wait for a worker to end by itself."""
    code = process.wait(30)
    process.returncode = 0  # the end of the block expects a worker that was told to stop
    return code


@pytest.mark.parametrize(("fault", "what", "cure"), FAULTS)
async def test_an_idle_worker_stops_and_says_why(
    site: Site, fault: Callable[[Site], None], what: str, cure: str
) -> None:
    with site.running("shop") as process:
        site.wait_for_workers(1)
        fault(site)
        assert ended(process) == CANNOT_START
    assert what in site.log()
    assert cure in site.log()
    assert "answers again" not in site.log()


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_busy_worker_commits_nothing_into_a_file_that_was_replaced(
    site: Site, workers: str
) -> None:
    with site.running("shop", "--workers", workers, "--grace", "1") as process:
        site.wait_for_workers(int(workers))
        slow: dict[str, object] = {"kind": "slow", "seconds": 600}
        quick: list[dict[str, object]] = [{"order": number} for number in range(50)]
        await site.publish("OrderPlaced", [slow, *quick])
        site.wait((site.folder / "slow-began").exists, "it is busy")
        site.wait(lambda: len(site.documents("mails")) == 50, "the quick ones are done")
        restore_backup(site)
        untouched = site.database.read_bytes()
        assert ended(process) == CANNOT_START
    assert site.database.read_bytes() == untouched
    # Restarted on the new file, as the message says: all that was in it goes on.
    with site.running("shop"):
        site.wait_for_workers(1)
        await site.publish("OrderPlaced", [{"order": 50}])
        site.wait(lambda: len(site.documents("mails")) == 51, "it works on the new file")


async def test_a_worker_that_lost_its_log_saves_what_was_committed(site: Site) -> None:
    with site.running("shop") as process:
        site.wait_for_workers(1)
        await site.publish("OrderPlaced", [{"order": n} for n in range(50)])
        site.wait(lambda: len(site.documents("mails")) == 50, "all are done")
        remove_log(site)
        assert ended(process) == CANNOT_START
    assert len(site.documents("mails")) == 50
    assert site.headway("verify").returncode == 0
