"""Whatever comes to the front door: refused with its name, its value and the cure, or processed."""

import asyncio
import json
from base64 import b64decode
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway.order import Disposition
from headway.systems.uptime import metrics
from headway.systems.uptime.validation import AHEAD_AT_MOST, Drop
from headway.testing.ports import Offer
from tests.commands import app
from tests.systems.uptime.sites import FOUR, Site, at, check, send

GOOD = check(FOUR)


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(GOOD), **fields}).encode()


GARBAGE = {
    "nothing": b"",
    "null": b"null",
    "a message of Kafka without a value": None,
    "no JSON": GOOD[:-1],
    "something after it": GOOD + b"x",
    "other encoding": GOOD.decode().encode("utf-16"),
    "half a character": GOOD.replace(b"s1-240", rb"\ud800"),
    "nested too deep": GOOD.replace(
        b'"request_info":null', b'"request_info":{"a":' + b"[" * 100_000
    ),
    "no fields": b"{}",
    "endless": GOOD.replace(b"14400000", b"1e999"),
    "half a millisecond": changed(scheduled_check_time_ms=1.5),
    "before 1970": changed(scheduled_check_time_ms=-1),
    "huge": changed(scheduled_check_time_ms=10**30),
    "far ahead": changed(scheduled_check_time_ms=2**53 - 1),
    "unknown status": changed(status="weird"),
    "no guid": changed(guid=""),
    "long guid": changed(guid="g" * 10_000),
    "region with a line": changed(region="a\nb"),
}


@pytest.mark.parametrize("raw", GARBAGE.values(), ids=GARBAGE)
async def test_what_is_no_result_is_kept_with_the_reason_and_holds_up_no_other(
    memory: Site, raw: Any
) -> None:
    assert await memory.consumer().handle_results([raw, GOOD]) == [
        Drop.MALFORMED,
        Disposition.APPLIED,
    ]
    (kept,) = await memory.store.rejected(10)
    assert kept.raw == (raw or b"")
    assert kept.reason
    assert memory.counts.get(metrics.DROPPED, {"reason": "malformed"}) == 1
    assert await memory.applied() == [FOUR]


async def test_a_person_sees_what_was_no_result_and_why(tmp_path: Path) -> None:
    site = Site("sqlite", tmp_path)
    await site.open()
    await site.consumer().handle_results([b"\xff\x1b[2J\n", changed(guid=""), GOOD])
    await site.close()
    command = ["uptime", "rejected", "--store", f"sqlite:///{tmp_path}/uptime.db"]
    told = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert told.exit_code == 0
    assert "\x1b" not in told.stdout
    told = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--json", "--limit", "2"])
    second, first_ = json.loads(told.stdout)
    assert json.loads(second["raw"])["guid"] == ""
    assert b64decode(first_["raw_base64"]) == b"\xff\x1b[2J\n"
    assert datetime.fromisoformat(second["at"]) == site.clock.now()


async def test_a_result_from_the_future_does_not_make_its_monitor_deaf(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR)
    latest = site.clock.now() + AHEAD_AT_MOST
    ahead = changed(scheduled_check_time_ms=round(latest.timestamp() * 1000) + 1)
    assert await consumer.handle_result(ahead) is Drop.MALFORMED
    await site.pass_time(consumer, 200)
    assert await send(consumer, FOUR + 1) == [Disposition.APPLIED]
    assert await site.applied() == [FOUR, FOUR + 1]
    assert await site.missed() == []


async def test_what_cannot_be_read_any_more_does_not_hold_up_its_subscription(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR)
    # A person wrote into the backlog by hand.
    other = Offer("s1", at(FOUR + 2), b"no result", "token", 60_000)
    await consumer.sequences.offer([other])
    assert await send(consumer, FOUR + 3) == [Disposition.HELD]
    assert await send(consumer, FOUR + 1) == [Disposition.APPLIED]
    assert await site.applied() == [FOUR, FOUR + 1, FOUR + 3]
    assert (await consumer.sequences.waiting(1))[0] == 0
    assert (await site.store.totals()).rejected == 1
