"""The process of a worker: small, and still the one that was started."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headway.apps.worker.order import can_become_another
from tests.chaos.running import Site

LOOKS = """
import json, os, sys
from pathlib import Path
from headway import Service

orders = Service("orders")

@orders.on("OrderPlaced")
async def place(event, work):
    # Once it works: whatever is loaded late is loaded by now.
    seen = list(sys.modules)
    Path(os.environ["SITE"], "seen").write_text(json.dumps(seen))
"""
OF_THE_COMMAND_LINE = {"typer", "click", "rich", "pydantic"}
OF_OTHERS = {"fastapi", "httpx", "uvicorn", "prometheus_client", "asyncpg", "psycopg"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "looks.py").write_text(LOOKS)
    return Site(tmp_path)


def packages(site: Site) -> set[str]:
    names: list[str] = json.loads((site.folder / "seen").read_text())
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_worker_loads_only_what_it_works_with(site: Site, workers: int) -> None:
    with site.running("looks", "--workers", str(workers)) as process:
        site.wait_for_workers(workers)
        await site.publish("OrderPlaced", [{"order": 1}])
        site.wait(lambda: site.left() == 0, "it is handled")
        # The signals of whoever started it reach it.
        assert (site.workers() == [process.pid]) is (workers == 1)
    assert packages(site) & (OF_THE_COMMAND_LINE | OF_OTHERS) == set()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_bus_that_was_typed_is_in_no_command_line_of_a_worker(
    site: Site, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    elsewhere = {**site.environment, "HEADWAY_BUS": f"{site.url}.other"}
    monkeypatch.setattr(Site, "environment", elsewhere)
    with site.running("looks", "--bus", site.url, "--workers", str(workers)):
        site.wait_for_workers(workers)
        for pid in site.workers():
            words = Path(f"/proc/{pid}/cmdline").read_text()
            assert "looks" in words
            assert site.url not in words


def test_an_idle_worker_is_small(site: Site) -> None:
    with site.running("looks") as process:
        site.wait_for_workers(1)
        status = Path(f"/proc/{process.pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 35_000, resident


def test_a_module_of_the_current_folder_hides_none_of_pythons_own(site: Site) -> None:
    (site.folder / "queue.py").write_text("raise RuntimeError('not meant')")
    ran = subprocess.run(
        [Path(sys.executable).with_name("headway"), "run", "looks:ordrs"],
        env=site.environment,
        cwd=site.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("headway: 'looks:ordrs' is no service, did you mean looks:orders?")


def test_the_options_of_python_itself_are_kept() -> None:
    program = (
        "from headway.apps.worker.order import Order, command; "
        "print(command(Order(services=['shop'], concurrency=1, grace=0)))"
    )
    said = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "'-X', 'dev'" in said
    assert "'-Werror'" in said


def test_who_watches_a_process_does_not_lose_it() -> None:
    assert can_become_another()
    sys.setprofile(lambda *_: None)
    try:
        assert not can_become_another()
    finally:
        sys.setprofile(None)
