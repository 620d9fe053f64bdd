"""An event that kills its worker is found out, and its neighbours are none the worse for it."""

from collections.abc import Callable

import pytest

from tests.chaos.broker import BrokerSite
from tests.chaos.running import Site

NEIGHBOURS = 99


@pytest.mark.timeout(240)
async def test_of_a_hundred_that_were_taken_ahead_only_the_one_that_kills_is_condemned(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
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
    assert letter["original_event"]["data"] == bomb
    assert letter["error_type"] == "CrashLoopError"
    assert letter["attempts"] == [], "nothing raised, so no failure was recorded"
    done = sorted(int(str(parcel["number"])) for parcel in site.documents("parcels"))
    assert done == list(range(NEIGHBOURS))
    ended = site.query("select ended, count(*) from headway_done group by 1 order by 1")
    assert ended == [("done", NEIGHBOURS), ("failed", 1)]
    on_broker = isinstance(site, BrokerSite)
    deaths = site.log().count("exit code 7")
    assert 2 <= deaths <= (5 if on_broker else 4), site.log()[-3000:]
    if not on_broker:  # which does not know what it accepted
        verified = site.headway("verify")
        assert verified.returncode == 0, verified.stdout + verified.stderr
    record_property("shown", f"crash_loop after {deaths} deaths, 99 of 99 neighbours done")
