"""On a broker too: an event that kills its worker is found out, and its neighbours are done."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.broker import BrokerSite

NEIGHBOURS = 99


@pytest.mark.timeout(240)
async def test_of_a_hundred_that_were_taken_ahead_only_the_one_that_kills_is_condemned(
    tmp_path: Path, rabbitmq_vhost: str, record_property: Callable[[str, object], None]
) -> None:
    site = BrokerSite(tmp_path, broker=rabbitmq_vhost)
    with site.running("fragile"):
        site.wait(lambda: "Running fragile" in site.log(), "the queues are declared")
    bomb = {"kind": "bomb", "number": 50}
    parcels: list[dict[str, object]] = [
        {"kind": "well", "number": number} for number in range(NEIGHBOURS)
    ]
    await site.publish("Parcel", [*parcels[:50], bomb, *parcels[50:]])
    with site.running("fragile", "--workers", "2", "--prefetch", "100", "--concurrency", "1"):
        site.wait(lambda: site.ended() == NEIGHBOURS + 1, "all events have ended", seconds=120)

    (letter,) = site.letters("fragile.failed")
    assert letter["abandoned_reason"] == "crash_loop"
    assert letter["attempts"] == [], "nothing raised, so no failure was recorded"
    done = sorted(int(str(parcel["number"])) for parcel in site.documents("parcels"))
    assert done == list(range(NEIGHBOURS))
    ended = site.query("select ended, count(*) from headway_done group by 1 order by 1")
    assert ended == [("done", NEIGHBOURS), ("failed", 1)]
    deaths = site.log().count("exit code 7")
    assert 2 <= deaths <= 5, site.log()[-3000:]
    record_property("shown", f"crash_loop after {deaths} deaths, 99 of 99 neighbours done")
