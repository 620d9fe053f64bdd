"""The process that runs several workers: which of their ends stops all, and which does not."""

import os
import signal
from pathlib import Path

import pytest

from tests.chaos.running import Site

CANNOT_START = 2


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_workers_that_cannot_start_at_first_stop_all(site: Site) -> None:
    (site.folder / "refuse").touch()
    with site.started("guarded:orders", "--workers", "2") as process:
        assert process.wait(60) == CANNOT_START
    assert "Invalid GUARD" in site.log()


async def test_replacement_that_cannot_start_leaves_the_others_at_work(site: Site) -> None:
    with site.running("guarded:orders", "--workers", "2"):
        site.wait(lambda: site.log().count("Running orders") == 2, "both workers run")
        (site.folder / "refuse").touch()
        killed, other = site.workers()
        os.kill(killed, signal.SIGKILL)
        site.wait(lambda: site.log().count("Invalid GUARD") >= 2, "the replacement was tried twice")
        await site.publish("OrderPlaced", [{"order": 1}])
        site.wait(lambda: len(site.documents("orders")) == 1, "the other worker goes on")
        assert other in site.workers()
        (site.folder / "refuse").unlink()
        site.wait(lambda: site.log().count("Running orders") == 3, "the replacement runs")
