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

from headway.clock import CHANCE, CLOCK
from headway.testing.engines import Publisher, open_engine
from tests.chaos.running import HEADWAY, Site


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
    file = re.escape(str(site.folder))
    running = rf"Running orders, mailer on sqlite:///{file}/[^ ]+( \(a new file\))? \(process \d+\)"
    assert re.fullmatch(running, messages[0])
    assert re.fullmatch(r"Stopped \(process \d+\)", messages[-1])


def test_a_worker_says_that_it_makes_the_file(site: Site) -> None:
    with site.running("shop"):  # nothing else opens the file, which would make it
        site.wait(
            lambda: said(site, r"Running orders, mailer on [^ ]+ \(a new file\)"), "it is new"
        )
    with site.running("shop"):
        site.wait(lambda: said(site, r"Running orders, mailer on [^ ]+ \(process"), "it was there")


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


async def test_a_hangup_reloads_the_log_level(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = site.folder / "settings"
    monkeypatch.setenv("HEADWAY_SETTINGS", str(settings))
    settings.write_text("HEADWAY_LOG_LEVEL=WARNING\n")
    with site.running("shop") as process:
        site.wait_for_workers(1)
        await site.publish("OrderPlaced", [{"kind": "bad"}])
        site.wait(lambda: said(site, "sent to DLQ"), "it is a dead letter")
        assert not said(site, "Running orders")
        settings.write_text("HEADWAY_LOG_LEVEL=loud\n")
        process.send_signal(signal.SIGHUP)
        site.wait(lambda: said(site, "old log level stays in force"), "it is refused")
        settings.write_text("HEADWAY_LOG_LEVEL=DEBUG\n")
        process.send_signal(signal.SIGHUP)
        site.wait(lambda: said(site, "Log level changed: WARNING -> DEBUG"), "it says so")
        process.send_signal(signal.SIGHUP)
        site.wait(lambda: said(site, "SIGHUP received: reloading settings"), "it goes by it")


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_hangup_with_a_misspelt_setting_changes_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    settings = site.folder / "settings"
    monkeypatch.setenv("HEADWAY_SETTINGS", str(settings))
    settings.write_text("RETRY_MAX_ATTEMPTS=8\n")
    refused = (
        "The old settings stay in force: HEADWAY_LOG_LEVL (line 3 of HEADWAY_SETTINGS "
        f"{str(settings)!r}) is no setting: did you mean HEADWAY_LOG_LEVEL?"
    )
    processes = workers if workers == 1 else workers + 1  # with the supervisor
    with site.running("shop", "--workers", str(workers)) as process:
        site.wait_for_workers(workers)
        settings.write_text(
            "RETRY_MAX_ATTEMPTS=2\nHEADWAY_LOG_LEVEL=DEBUG\nHEADWAY_LOG_LEVL=DEBUG\n"
        )
        process.send_signal(signal.SIGHUP)
        site.wait(lambda: site.log().count(refused) == processes, "every process refuses it")
        settings.write_text("RETRY_MAX_ATTEMPTS=3\n")
        process.send_signal(signal.SIGHUP)
        reloaded = "orders reloaded: max_attempts 8 -> 3"
        site.wait(lambda: site.log().count(reloaded) == workers, "they go on from the old ones")
    levels = {str(line["level"]) for line in lines(site) if refused in str(line["message"])}
    assert levels == {"ERROR"}
    assert not said(site, "Log level changed")


async def test_the_option_goes_before_the_setting_in_every_worker(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_LOG_LEVEL", "ERROR")
    with site.running("shop", "--workers", "2", "--log-level", "INFO"):
        site.wait_for_workers(2)
        site.wait(lambda: site.log().count("Running orders") == 2, "both say so")


async def test_many_equal_ends_are_a_few_lines_that_add_up(site: Site) -> None:
    with site.running("shop"):
        site.wait_for_workers(1)
        engine = open_engine(site.url)
        publisher = Publisher(engine.bus, CLOCK, CHANCE)
        for number in range(500):
            await publisher.publish_bytes(b"no event", "OrderPlaced", operation=f"o-{number}")
        await engine.close()
        site.wait(lambda: site.left() == 0, "all events have ended")
    ends = [line for line in lines(site) if "Event sent to DLQ" in str(line["message"])]
    assert len(ends) < 50
    assert sum(int(str(line.get("count", 1))) for line in ends) == 500
    assert {line["reason"] for line in ends} == {"malformed"}


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_order_to_stop_is_acknowledged(site: Site, workers: str) -> None:
    with site.running("shop", "--workers", workers, "--grace", "7") as process:
        site.wait_for_workers(int(workers))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    heard = [str(line["message"]) for line in lines(site) if "SIGTERM received" in str(line)]
    if workers == "2":
        assert heard[0].startswith("SIGTERM received: stopping 2 worker processes, which have ")
        heard = heard[1:]
    assert len(heard) == int(workers)
    assert {line.partition(". ")[0] for line in heard} == {"SIGTERM received: stopping"}
    assert all("Running handlers have 7 s to finish" in line for line in heard)


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
        (["./shop.py"], {}, "as Python imports it, shop\n"),
        (["shop", "--bus", "redis://localhost"], {}, "Invalid --bus 'redis://localhost'"),
        (["shop"], {"HEADWAY_BUS": "sqlite://x"}, "three slashes are needed"),
        (["shop"], {"RETRY_MAX_ATTEMPTS": "many"}, "RETRY_MAX_ATTEMPTS='many'"),
        (["shop"], {"RETRY_BASE_DELAY": "5"}, "did you mean RETRY_BASE_DELAY_MS?"),
        (["shop"], {"headway_bus": "sqlite:///x.db"}, "did you mean HEADWAY_BUS?"),
        (["shop"], {"HEADWAYBUS": "sqlite:///x.db"}, "did you mean HEADWAY_BUS?"),
        (["shop"], {"METRICS_BACKEND": "promethus"}, "METRICS_BACKEND='promethus'"),
        (["shop", "--workers", "2"], {"METRICS_BACKEND": "x"}, "METRICS_BACKEND='x'"),
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
