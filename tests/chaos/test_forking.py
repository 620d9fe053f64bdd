"""A process that a handler forks is no worker: it has nothing of it, and ends if it comes back."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.chaos.running import Site


@contextmanager
def working(site: Site, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with site.running("forks", "--grace", "5", *arguments) as process:
        site.wait(lambda: "Running forks" in site.log(), "it runs")
        yield process


def ran(site: Site) -> list[dict[str, object]]:
    return [{**each, "_id": None} for each in site.documents("ran")]


@pytest.mark.parametrize("how", ["Returned", "Raised", "Awaited", "Threaded"])
async def test_a_child_that_comes_back_from_the_handler_ends_and_the_worker_goes_on(
    site: Site, how: str
) -> None:
    with working(site) as process:
        await site.publish(how, [{}])
        site.wait((site.folder / "status").exists, "the child has ended", 20)
        site.wait(lambda: len(ran(site)) == 1, "the worker has committed")
        await asyncio.sleep(0.3)
        assert ran(site) == [{"_id": None, "who": how.lower(), "pid": process.pid}]
        assert (site.folder / "status").read_text() == "1"
        assert not (site.folder / "went-on").exists(), "it never came back to the event loop"
        assert f"was forked by a handler of worker {process.pid}" in site.log()
        assert site.log().count("was forked by a handler") == 1
        await site.publish("Helped", [{}])
        site.wait(lambda: len(ran(site)) == 2, "the worker goes on")


async def test_processes_that_handlers_start_as_they_should_work(site: Site) -> None:
    with working(site) as process:
        await site.publish("Helped", [{}])
        site.wait(lambda: len(ran(site)) == 1, "it is done")
        await site.publish("HelpedInThread", [{}])
        site.wait(lambda: len(ran(site)) == 2, "it is done")
        pid = process.pid
    well = {"_id": None, "pid": pid, "fork": True, "spawn": True, "terminated": True}
    assert ran(site) == [
        {**well, "who": "helped", "subprocess": "7", "exec": 5},
        {**well, "who": "helped in a thread"},
    ]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def descriptors(pid: int) -> list[str]:
    return [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]


async def test_a_child_that_outlives_its_worker_keeps_none_of_its_sockets(site: Site) -> None:
    port = free_port()
    with working(site, "--metrics-port", str(port)):
        await site.publish("Left", [{}])
        site.wait((site.folder / "child").exists, "there is a child")
        site.wait(lambda: len(ran(site)) == 1, "the worker has committed")
        child = int((site.folder / "child").read_text())
        open_there = descriptors(child)
    try:
        assert not is_dead(child), "it outlives its worker"
        held = [each for each in open_there if each.startswith(("socket:", "anon_inode:"))]
        assert held == []
        assert not [each for each in open_there if each.endswith(("-next", "-now"))]
        with socket.create_server(("127.0.0.1", port)):
            pass  # nobody listens there
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


async def test_a_signal_to_a_child_is_no_signal_to_its_worker(site: Site) -> None:
    with working(site) as process:
        await site.publish("Left", [{}])
        site.wait((site.folder / "child").exists, "there is a child")
        child = int((site.folder / "child").read_text())
        os.kill(child, signal.SIGTERM)
        site.wait(lambda: is_dead(child), "the child ends", 10)
        await asyncio.sleep(0.5)
        assert process.poll() is None
        assert "Stopped" not in site.log()


def is_dead(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


FORKED_PUBLISHER = """
import asyncio, os, sys
from headway import Service, connect

orders = Service("orders")
orders.on("OrderPlaced")(lambda event, work: None)

async def publish():
    async with connect(sys.argv[1]) as headway:
        await headway.declare(orders)
        await headway.publish_all([("OrderPlaced", {})] * 10)

asyncio.run(publish())
child = os.fork()
asyncio.run(publish())
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_draws_other_ids_than_its_parent(tmp_path: Path) -> None:
    site = Site(tmp_path)
    subprocess.run([sys.executable, "-c", FORKED_PUBLISHER, site.url], check=True, timeout=60)
    bodies = [json.loads(str(body)) for (body,) in site.query("select body from headway_items")]
    drawn = {body["event_id"][-12:] for body in bodies}  # the beginning of an id is its time
    assert (len(bodies), len(drawn)) == (30, 30)
