"""A real Pushgateway: what a push replaces, what it leaves, and what happens when it is away."""

import base64
import re
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from time import monotonic

import pytest

from headway.adapters.prometheus.pushing import Pushgateway
from headway.core.gateway_url import read_gateway_url
from headway.testing import servers
from headway.testing.ports import Tally
from headway.testing.servers.loopback import HOST, free_port, http_request
from tests.engines.observers.sweep_figures import NOW, TALLY, figures

pytestmark = pytest.mark.server("pushgateway")

UNKNOWN = figures({"messages": None}, known=False, held_back={"messages": None})


def at(url: str, within: float = 1) -> Pushgateway:
    return Pushgateway(read_gateway_url("PUSHGATEWAY_URL", url), timedelta(seconds=within))


@pytest.fixture
def gateway(pushgateway_server: servers.Pushgateway) -> Iterator[servers.Pushgateway]:
    http_request("DELETE", pushgateway_server.port, "/metrics/job/retry_job")
    yield pushgateway_server
    http_request("DELETE", pushgateway_server.port, "/metrics/job/retry_job")


def samples(server: servers.Pushgateway) -> dict[str, str]:
    """What is there of sweeps, by name and labels of its own."""
    _, page = http_request("GET", server.port, "/metrics")
    found = re.findall(r"^(retry_job_\w+)\{(.*)\} (\S+)$", page.decode(), re.MULTILINE)
    group = 'instance="",job="retry_job"'
    assert all(group in labels for _, labels, _ in found)
    return {
        f"{name}{{{labels.replace(group, '').strip(',').replace(',,', ',')}}}": value
        for name, labels, value in found
    }


async def test_what_several_processes_push_is_in_one_group(gateway: servers.Pushgateway) -> None:
    await at(gateway.url).push(figures())
    await at(gateway.url).push(figures(stored={"retry_job_runs_total|status=success": 2}))
    found = samples(gateway)
    assert found['retry_job_runs_total{status="success"}'] == "2"
    assert found['retry_job_documents_requeued_total{collection="messages"}'] == "12"
    assert float(found["retry_job_last_run_timestamp_seconds{}"]) == NOW.timestamp()
    _, page = http_request("GET", gateway.port, "/metrics")
    assert page.count(b"\nretry_job_runs_total{") == 2  # success and failure, of one group


async def test_a_whole_push_forgets_what_is_gone(gateway: servers.Pushgateway) -> None:
    await at(gateway.url).push(figures({"messages": TALLY, "old": TALLY}))
    assert 'retry_job_stuck_documents{collection="old"}' in samples(gateway)
    assert 'retry_job_held_back_documents{collection="messages"}' in samples(gateway)
    await at(gateway.url).push(figures(held_back={}))
    assert 'retry_job_stuck_documents{collection="old"}' not in samples(gateway)
    assert 'retry_job_held_back_documents{collection="messages"}' not in samples(gateway)


async def test_what_is_unknown_is_nan_and_the_counters_stay(gateway: servers.Pushgateway) -> None:
    await at(gateway.url).push(figures())
    await at(gateway.url).push(UNKNOWN)
    found = samples(gateway)
    assert found['retry_job_stuck_documents{collection="messages"}'] == "NaN"
    assert found['retry_job_failed_documents{collection="messages"}'] == "NaN"
    assert found['retry_job_oldest_stuck_seconds{collection="messages"}'] == "NaN"
    assert found["retry_job_database_up{}"] == "0"
    assert found['retry_job_documents_requeued_total{collection="messages"}'] == "12"
    assert found["retry_job_duration_seconds_count{}"] == "2"


async def test_the_push_before_the_first_run_says_nothing_about_runs(
    gateway: servers.Pushgateway,
) -> None:
    await at(gateway.url).push(figures(held_back={"messages": 4}))
    await at(gateway.url).push(figures({}, last_run=None, held_back={}))
    found = samples(gateway)
    assert float(found["retry_job_last_run_timestamp_seconds{}"]) == NOW.timestamp()
    assert found['retry_job_held_back_documents{collection="messages"}'] == "4"
    assert found['retry_job_stuck_documents{collection="messages"}'] == "7"


async def test_odd_names_of_collections_arrive(gateway: servers.Pushgateway) -> None:
    await at(gateway.url).push(figures({'a "b" \\ ✓': Tally(stuck=1, given_up=0, oldest=NOW)}))
    assert any("✓" in name for name in samples(gateway))


async def test_one_that_is_away_or_refuses_is_an_oserror(gateway: servers.Pushgateway) -> None:
    with pytest.raises(OSError, match="refused"):
        await at(f"http://{HOST}:{free_port()}").push(figures())
    with pytest.raises(OSError, match="404"):
        await at(f"{gateway.url}/nowhere").push(figures())


@pytest.mark.parametrize(("answer", "why"), [(b"", "[Tt]ime"), (b"no HTTP\r\n\r\n", "Status")])
async def test_one_that_is_silent_or_talks_nonsense_is_an_oserror(answer: bytes, why: str) -> None:
    with socket.create_server((HOST, 0)) as server:

        def speak() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(answer)
                while connection.recv(65_536):  # until the client has enough
                    pass

        threading.Thread(target=speak, daemon=True).start()
        began = monotonic()
        with pytest.raises(OSError, match=why):
            await at(f"http://{HOST}:{server.getsockname()[1]}", within=0.1).push(figures())
        assert monotonic() - began < 5


async def test_a_login_is_sent_as_a_header_and_never_said() -> None:
    heard: list[tuple[str, str | None]] = []

    class Door(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            heard.append((self.path, self.headers["Authorization"]))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(401)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer((HOST, 0), Door) as door:
        threading.Thread(target=door.serve_forever, daemon=True).start()
        url = f"http://me:s3cret@{HOST}:{door.server_port}"
        gateway = at(url)
        with pytest.raises(OSError, match="401") as refused:
            await gateway.push(figures())
        door.shutdown()
    token = base64.b64encode(b"me:s3cret").decode()
    assert heard == [("/metrics/job/retry_job", f"Basic {token}")]
    assert "s3cret" not in f"{refused.value} {gateway} {gateway!r}"
