"""`headway run`, as an operator meets it: started, stopped, reloaded, killed, misconfigured."""

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.proof.running import HEADWAY, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def lines(site: Site) -> list[dict[str, object]]:
    return [json.loads(line) for line in site.log().splitlines()]


def said(site: Site, pattern: str) -> bool:
    return re.search(pattern, site.log()) is not None


async def test_services_of_a_module_run_together_and_pass_events_on(site: Site) -> None:
    with site.running("shop"):
        site.wait_for_workers(1)
        await site.publish("OrderPlaced", [{"order": number} for number in range(20)])
        site.wait(lambda: len(site.documents("mails")) == 20, "all mails are there")
    assert sorted(int(str(mail["order"])) for mail in site.documents("mails")) == list(range(20))
    assert site.headway("verify").returncode == 0
    messages = [str(line["message"]) for line in lines(site)]
    assert re.fullmatch(r"Running orders, mailer \(process \d+\)", messages[0])
    assert re.fullmatch(r"Stopped \(process \d+\)", messages[-1])


async def test_the_order_to_stop_lets_a_handler_finish_and_hands_the_rest_back(site: Site) -> None:
    with site.running("shop", "--concurrency", "1", "--prefetch", "10") as process:
        site.wait_for_workers(1)
        placed: list[dict[str, object]] = [{"order": number} for number in range(6)]
        placed[0] |= {"kind": "slow", "seconds": 1.5}
        await site.publish("OrderPlaced", placed)
        site.wait((site.folder / "slow-began").exists, "the slow one has begun")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert [document["order"] for document in site.documents("orders")] == [0]
    untouched = site.query(
        "select place, returns, failures, token from headway_items where queue like 'orders%'"
    )
    assert untouched == [("ready", 0, 0, None)] * 5


async def test_a_handler_that_outlasts_the_grace_is_handed_back_uncounted(site: Site) -> None:
    with site.running("shop", "--grace", "0.3") as process:
        site.wait_for_workers(1)
        await site.publish("OrderPlaced", [{"kind": "slow", "seconds": 600}])
        site.wait((site.folder / "slow-began").exists, "the slow one has begun")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert site.query("select place, returns, failures, token from headway_items") == [
        ("ready", 0, 0, None)
    ]


async def test_a_hangup_reloads_the_retry_settings(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = site.folder / "settings"
    monkeypatch.setenv("HEADWAY_SETTINGS", str(settings))
    monkeypatch.setenv("RETRY_BASE_DELAY_MS", "1")
    settings.write_text("# as it was\nRETRY_MAX_ATTEMPTS=8\n")
    with site.running("shop") as process:
        site.wait_for_workers(1)
        settings.write_text("RETRY_MAX_ATTEMPTS=many\n")
        process.send_signal(signal.SIGHUP)
        site.wait(lambda: said(site, "old retry settings stay in force"), "it is refused")
        settings.write_text("RETRY_MAX_ATTEMPTS=2\n")
        process.send_signal(signal.SIGHUP)
        site.wait(lambda: said(site, "orders reloaded: max_attempts 8 -> 2"), "it says so")
        await site.publish("OrderPlaced", [{"kind": "waits", "customer": "nobody"}])
        site.wait(lambda: said(site, "sent to DLQ after 2 attempts"), "it goes by the new ones")


async def test_a_hangup_reaches_every_worker(site: Site) -> None:
    with site.running("shop", "--workers", "2") as process:
        site.wait_for_workers(2)
        process.send_signal(signal.SIGHUP)
        site.wait(lambda: site.log().count("Retry settings of orders reloaded") == 2, "both say so")


async def test_workers_end_when_their_supervisor_is_killed(site: Site) -> None:
    with site.running("shop", "--workers", "2") as process:
        site.wait_for_workers(2)
        pids = site.workers()
        process.kill()
        process.wait()
        site.wait(lambda: not any(alive(pid) for pid in pids), "they are gone")
        assert site.workers() == []
        # Something has to be there for the end of the block.
        process.returncode = 0


async def test_the_metrics_of_all_workers_are_on_one_page(site: Site) -> None:
    with site.running("shop", "--workers", "2", "--metrics-port", "0"):
        site.wait_for_workers(2)
        found = re.search(r"http://127\.0\.0\.1:\d+/metrics", site.log())
        assert found is not None
        await site.publish("OrderPlaced", [{"order": number} for number in range(40)])
        await site.publish("OrderPlaced", [{"kind": "bad"}])
        site.wait(lambda: site.left() == 0, "all events have ended")
        with urllib.request.urlopen(found[0]) as page:  # noqa: S310, ASYNC210 (our own page)
            text = page.read().decode()
    assert 'events_processed_total{service="orders"} 40.0' in text
    assert 'events_processed_total{service="mailer"} 40.0' in text
    assert 'event_retry_dlq_total{reason="non_retryable",service="orders"} 1.0' in text
    assert 'failed_letters{queue="orders.failed"} 1.0' in text
    assert "headway_workers 2.0" in text
    assert "headway_engine_up 1.0" in text


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["nowhere:orders"], {}, "there is no module 'nowhere'"),
        (["shop:ordrs"], {}, "did you mean shop:orders?"),
        (["shop.py:orders"], {}, "name the module as Python imports it, shop"),
        (["shop", "--bus", "redis://localhost"], {}, "--bus='redis://localhost'"),
        (["shop"], {"HEADWAY_BUS": "sqlite://x"}, "three slashes are needed"),
        (["shop"], {"RETRY_MAX_ATTEMPTS": "many"}, "RETRY_MAX_ATTEMPTS='many'"),
        (["shop"], {"ERROR_REPORTER_TYPE": "mail"}, "ERROR_REPORTER_TYPE='mail'"),
        (["shop", "--workers", "2"], {"RETRY_MAX_ATTEMPTS": "many"}, "RETRY_MAX_ATTEMPTS='many'"),
    ],
)
def test_a_bad_setting_is_refused_at_start_with_its_name_and_value(
    site: Site, arguments: list[str], environment: dict[str, str], words: str
) -> None:
    ran = subprocess.run(
        [*HEADWAY, "run", *arguments],
        env={**site.environment, **environment},
        cwd=site.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_port_that_is_taken_is_refused(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = site.headway("run", "shop", "--metrics-port", str(port))
    assert ran.returncode == 2, ran.stderr
    assert f"--metrics-port={port}" in ran.stderr


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
