"""An event that kills its worker is found out, and its neighbours are none the worse for it."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headway.operations import Letter
from tests.chaos.running import Site

NEIGHBOURS = 99


@pytest.mark.timeout(180)
async def test_an_event_that_exits_ends_as_a_crash_loop_and_its_neighbours_are_done(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    site = Site(tmp_path)
    with site.running("fragile"):
        site.wait_for_workers(1)
    bomb = {"kind": "bomb", "number": 50}
    parcels: list[dict[str, object]] = [
        {"kind": "well", "number": number} for number in range(NEIGHBOURS)
    ]
    await site.publish("Parcel", [*parcels[:50], bomb, *parcels[50:]])
    with site.running("fragile", "--workers", "2", "--prefetch", "100", "--concurrency", "1"):
        site.wait(lambda: site.left() == 0, "all events have ended")

    ((body,),) = site.query("select cast(body as text) from headway_letters")
    letter = msgspec.json.decode(str(body), type=Letter)
    assert letter.abandoned_reason == "crash_loop"
    assert letter.original_event["data"] == bomb
    assert letter.error_type == "CrashLoopError"
    assert letter.attempts == (), "nothing raised, so no failure was recorded"
    done = sorted(int(str(parcel["number"])) for parcel in site.documents("parcels"))
    assert done == list(range(NEIGHBOURS))
    ended = site.query("select ended, count(*) from headway_done group by 1 order by 1")
    assert ended == [("done", NEIGHBOURS), ("failed", 1)]
    deaths = site.log().count("exit code 7")
    assert 2 <= deaths <= 4, site.log()[-3000:]
    verified = site.headway("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    record_property("shown", f"crash_loop after {deaths} deaths, 99 of 99 neighbours done")
