"""Whatever comes to the front door: refused with its name, its value and the cure, or processed."""

import asyncio
import json
import math
import re
from base64 import b64decode
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner

from headway import ConfigurationError, connect
from headway.order import Disposition
from headway.systems.uptime import metrics
from headway.systems.uptime.embedded import Embedded
from headway.systems.uptime.exposition import StoreCollector
from headway.systems.uptime.monitors import Subscription
from headway.systems.uptime.reading import read_subscriptions
from headway.systems.uptime.rollout import Rollout
from headway.systems.uptime.service import _data, publish_results
from headway.systems.uptime.settings import UptimeSettings
from headway.systems.uptime.validation import AHEAD_AT_MOST, Drop
from headway.testing.ports import Offer
from tests.commands import app
from tests.systems.uptime.sites import FOUR, Site, at, check, send

GOOD = check(FOUR)
DEEP = b"[" * 100_000


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(GOOD), **fields}).encode()


GARBAGE = {
    "nothing": (b"", "Input data was truncated"),
    "null": (b"null", "Expected `object`, got `null`"),
    "no JSON": (GOOD[:-1], "truncated"),
    "something after it": (GOOD + b"x", "trailing characters"),
    "other encoding": (GOOD.decode().encode("utf-16"), "invalid character"),
    "half a character": (GOOD.replace(b"s1-240", rb"\ud800"), "surrogate"),
    "nested too deep": (
        GOOD.replace(b'"request_info":null', b'"request_info":{"a":' + DEEP),
        "depth",
    ),
    "no fields": (b"{}", "missing required field `guid`"),
    "NaN": (GOOD.replace(b"14400000", b"NaN"), "invalid character"),
    "endless": (GOOD.replace(b"14400000", b"1e999"), "$.scheduled_check_time_ms"),
    "half a millisecond": (changed(scheduled_check_time_ms=1.5), "got `float`"),
    "a time in words": (changed(scheduled_check_time_ms="2026-01-05T04:00:00"), "got `str`"),
    "before 1970": (changed(scheduled_check_time_ms=-1), "scheduled_check_time_ms=-1 is not"),
    "huge": (changed(scheduled_check_time_ms=10**30), "use milliseconds since 1970"),
    "far ahead": (changed(scheduled_check_time_ms=2**53 - 1), "look at the clock of the checker"),
    "unknown status": (changed(status="weird"), "Invalid enum value 'weird'"),
    "no guid": (changed(guid=""), "guid='' is not accepted: use 1 to 200 characters"),
    "long guid": (changed(guid="g" * 10_000), "guid='gggggggg"),
    "long region": (changed(region="r" * 201), "region='rrrr"),
    "region with a line": (changed(region="a\nb"), r"region='a\nb' is not accepted"),
}


@pytest.mark.parametrize(("raw", "words"), GARBAGE.values(), ids=GARBAGE)
async def test_what_is_no_result_is_kept_with_the_reason_and_holds_up_nobody(
    memory: Site, raw: bytes, words: str
) -> None:
    consumer = memory.consumer()
    handled = await consumer.handle_results([raw, GOOD])
    assert handled == [Drop.MALFORMED, Disposition.APPLIED]
    (kept,) = await memory.store.rejected(10)
    assert kept.raw == raw
    assert words in kept.reason
    assert ": use " in kept.reason or ": send " in kept.reason
    assert memory.counts.get(metrics.DROPPED, {"reason": "malformed"}) == 1
    assert await memory.applied() == [FOUR]
    assert await memory.missed() == []


async def test_a_person_sees_what_was_no_result_and_why(tmp_path: Path) -> None:
    site = Site("sqlite", tmp_path)
    await site.open()
    await site.consumer().handle_results([b"\xff\x1b[2J\n", changed(guid=""), GOOD])
    await site.close()
    command = ["uptime", "rejected", "--store", f"sqlite:///{tmp_path}/uptime.db"]
    told = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert told.exit_code == 0
    latest, _, first, raw, *_ = told.stdout.splitlines()
    at = f"{site.clock.now():%Y-%m-%d %H:%M:%S}Z  "
    assert latest == f"{at}guid='' is not accepted: use 1 to 200 characters that can be printed"
    assert first.startswith(f"{at}no result of a check (")
    assert not raw.endswith("\\n")
    assert "\x1b" not in told.stdout
    told = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--json", "--limit", "2"])
    second, first_ = json.loads(told.stdout)
    assert json.loads(second["raw"])["guid"] == ""
    assert b64decode(first_["raw_base64"]) == b"\xff\x1b[2J\n"
    assert datetime.fromisoformat(second["at"]) == site.clock.now()


async def test_a_message_of_kafka_without_a_value_is_no_result(site: Site) -> None:
    nothing: Any = None
    assert await site.consumer().handle_results([nothing, GOOD]) == [
        Drop.MALFORMED,
        Disposition.APPLIED,
    ]
    assert (await site.store.totals()).rejected == 1


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


async def test_a_checker_whose_clock_is_a_little_ahead_is_believed(memory: Site) -> None:
    now = round(memory.clock.now().timestamp() * 1000)
    await memory.subscribe(began=now)
    ahead = changed(scheduled_check_time_ms=now + 30_000)
    assert await memory.consumer().handle_result(ahead) is Disposition.APPLIED


async def test_what_cannot_be_read_any_more_does_not_hold_up_its_subscription(site: Site) -> None:
    consumer = site.consumer()
    await send(consumer, FOUR)
    # Somebody wrote into the backlog by hand.
    other = Offer("s1", at(FOUR + 2), b"no result", "token", 60_000)
    await consumer.sequences.offer([other])
    assert await send(consumer, FOUR + 3) == [Disposition.HELD]
    assert await send(consumer, FOUR + 1) == [Disposition.APPLIED]
    assert await site.applied() == [FOUR, FOUR + 1, FOUR + 3]
    assert (await consumer.sequences.waiting(1))[0] == 0
    assert (await site.store.totals()).rejected == 1


async def test_a_region_may_have_any_name_on_the_page_of_metrics(memory: Site) -> None:
    for minute, region in enumerate(("a,b", "a,c", 'q"}%2C', "us east=1")):
        await memory.consumer().handle_result(check(FOUR + minute, region=region))
    counts, registry = memory.counts.taken(), CollectorRegistry()
    registry.register(StoreCollector(lambda: counts))
    page = generate_latest(registry).decode()
    shown = re.findall(r'uptime_results_processed_total\{region="(.*)",status="success"\} 1', page)
    assert sorted(shown) == sorted(["a,b", "a,c", r"q\"}%2C", "us east=1"])


async def test_a_time_without_a_zone_is_refused(memory: Site) -> None:
    naive = datetime(2026, 1, 5, 4, 0)  # noqa: DTZ001 (that is what is refused)
    with pytest.raises(ConfigurationError, match=r"caught_up=.*: name its time zone"):
        await memory.consumer().handle_results([GOOD], naive)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"interval_seconds": 0}, "interval_seconds=0 of subscription 's' is not accepted: use"),
        ({"interval_seconds": -60}, "interval_seconds=-60 of"),
        ({"interval_seconds": 10**30}, "whole seconds from 1 to 604800"),
        ({"interval_since_ms": -1}, "interval_since_ms=-1 of"),
        ({"interval_since_ms": 2**60}, "use milliseconds since 1970"),
        ({"subscription_id": ""}, "subscription_id='' is not accepted: use 1 to 200 characters"),
        ({"interval_seconds": 1.5}, "is no subscription (Expected `int`, got `float`"),
        ({"regions": {"eu": "half"}}, "is no subscription (Invalid enum value 'half'"),
    ],
    ids=str,
)
def test_a_subscription_that_cannot_be_followed_is_refused_by_its_line(
    fields: dict[str, Any], words: str
) -> None:
    line = json.dumps({"subscription": {"subscription_id": "s", **fields}}).encode()
    with pytest.raises(ConfigurationError, match=rf"^line 2.*{re.escape(words)}"):
        list(read_subscriptions([b"", line]))


def test_lines_of_any_depth_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="line 1 is no subscription"):
        list(read_subscriptions([b'{"more": ' + DEEP]))


def test_a_subscription_is_refused_in_a_program_too() -> None:
    with pytest.raises(ConfigurationError, match="interval_seconds=0 of subscription 's'"):
        Subscription("s", interval_seconds=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"percentage": math.nan}, "percentage=nan of f is not accepted: use a number from 0"),
        ({"percentage": -0.1}, "percentage=-0.1 of f"),
        ({"percentage": "50"}, "percentage='50' of f"),
        ({"percentage": None}, "percentage=None of f"),
        ({"percentage": True}, "percentage=True of f"),
        ({"organizations": "acme"}, "organizations='acme' of f is not accepted: use a frozenset"),
        ({"organizations": frozenset({1})}, "organizations=frozenset({1}) of f"),
    ],
    ids=str,
)
def test_a_rollout_that_makes_no_sense_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        Rollout(feature="f", **given)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("BACKLOG_RETRY_PERCENTAGE", "nan", "='nan' is not accepted: use a number from 0 to 100"),
        ("BACKLOG_RETRY_PERCENTAGE", "50%", "='50%' is not accepted"),
        ("TIME_SCALE", "0", "='0' is not accepted: use a number from 0.0001 to 1000"),
        ("PATIENCE_SECONDS", "-1", "='-1' is not accepted: use a number of seconds from 0"),
        ("BREAKER", "9" * 5000, "..." + "' is not accepted: use a whole number"),
        ("BUS", "garbage", " '***': it is not a URL. Use "),
        ("CELERY_BROKER", "http://u:s3cret@h", "='http://u:***@h' is not accepted: use redis://"),
        ("CELERY_BROKER", "redis://", "='redis://' is not accepted: use redis://HOST"),
        ("KAFKA_SERVERS", "host:port", "='host:port' is not accepted: use HOST:PORT"),
        ("KAFKA_TOPIC", "a b/c", "='a b/c' is not accepted: use up to 249 letters"),
    ],
)
def test_a_setting_of_garbage_is_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^(Invalid )?UPTIME_{name}.*{re.escape(words)}"):
        UptimeSettings.from_mapping({f"UPTIME_{name}": value})


def test_a_region_is_tried_out_or_it_counts() -> None:
    with pytest.raises(ConfigurationError, match="both name us: name a region in one of them"):
        UptimeSettings(regions=("eu", "us"), shadow_regions=("us",))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"percentage": 500}, "UPTIME_BACKLOG_RETRY_PERCENTAGE='500' is not accepted"),
        ({"percentage": True}, "UPTIME_BACKLOG_RETRY_PERCENTAGE='True' is not accepted"),
        ({"percentage": "50"}, "percentage='50' is not accepted: use a value that can be written"),
        ({"time_scale": math.nan}, "UPTIME_TIME_SCALE='nan' is not accepted"),
        ({"time_scale": math.inf}, "UPTIME_TIME_SCALE='inf' is not accepted"),
        ({"breaker": 1.5}, "UPTIME_BREAKER='1.5' is not accepted: use a whole number"),
        ({"patience": timedelta(days=-1)}, "UPTIME_PATIENCE_SECONDS='-86400' is not accepted"),
        ({"patience": 5}, "patience=5 is not accepted"),
        ({"store": None}, "store=None is not accepted"),
        ({"organizations": "acme"}, "organizations='acme' is not accepted"),
        ({"organizations": ("a,b",)}, "organizations=('a,b',) is not accepted"),
        ({"regions": ["eu"]}, "regions=['eu'] is not accepted"),
        ({"bus": b"amqp://u:s3cret@h"}, "bus='***' is not accepted"),
    ],
    ids=str,
)
def test_settings_of_garbage_are_refused_in_a_program_too(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        UptimeSettings(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"patience": timedelta(seconds=1) / 3},
        {"percentage": 100 / 3, "time_scale": 1 / 7},
        {"kafka_servers": "a:9092, [::1]:9092,b"},
        {"celery_broker": "amqp://a//;amqp://b//"},
    ],
    ids=str,
)
def test_settings_are_the_same_for_every_process(given: dict[str, Any]) -> None:
    settings = UptimeSettings(**given)
    assert UptimeSettings.from_mapping(settings.in_words()) == settings


@pytest.mark.parametrize("given", [{"workers": 0}, {"batch": 0}], ids=str)
def test_nobody_waits_for_workers_that_are_none(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"=0.* are not accepted: use at least 1 of each"):
        Embedded(UptimeSettings(), **given)


async def test_garbage_put_on_the_bus_is_kept_to_the_byte(tmp_path: Path) -> None:
    settings = UptimeSettings(store=f"sqlite:///{tmp_path}/uptime.db")
    deep = b"[" * 100_000
    stored: list[int] = []
    await publish_results(settings, [b"no json", b"\xff\x00", deep, b"[1]"], stored.append)
    assert sum(stored) == 4
    async with connect(settings.bus_url) as bus:
        assert (await bus.count()).accepted == 4
    assert _data(b"no json") == {"malformed": "no json"}
    assert b64decode(_data(b"\xff\x00")["malformed_base64"]) == b"\xff\x00"
    assert _data(deep) == {"malformed": deep.decode()}
