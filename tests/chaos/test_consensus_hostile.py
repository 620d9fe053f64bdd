"""Hostile archives, through the pipeline as it is run: nothing is lost, and nothing read twice."""

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.consensus_runs import PIPELINE, ConsensusSite
from tests.systems.consensus.hostile import write_folder

INGESTION = "ingestion.archive.submitted"


@pytest.mark.timeout(180)
async def test_a_hostile_folder_runs_to_the_end_and_nothing_is_parsed_twice(
    tmp_path: Path,
) -> None:
    hostile = write_folder(tmp_path / "hostile")
    site = ConsensusSite(tmp_path)
    await site.submit(hostile.folder)
    with site.running(PIPELINE, "--workers", "2"):
        await site.at_rest(90)
        first = await site.final_set()
        await check_ends(site, readable=hostile.readable, unreadable=hostile.unreadable)
        letters = await site.all_letters()
        ended = events_ended(site)
        await site.submit(hostile.folder)
        await site.at_rest(60)

    assert not first.differences(await site.final_set())
    again = events_ended(site)
    assert again.pop(INGESTION) == 2 * ended.pop(INGESTION)
    assert again == ended, "nothing but the ingestion had anything to do"
    both = await site.all_letters()
    refused = "archive.ingestion.failed"
    assert sum(queue == refused for queue, _ in letters) == hostile.refused
    assert sum(queue == refused for queue, _ in both) == 2 * hostile.refused
    assert [each for each in both if each[0] != refused] == [
        each for each in letters if each[0] != refused
    ]
    verified = site.headway("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr


async def check_ends(site: ConsensusSite, *, readable: int, unreadable: int) -> None:
    """Everything is processed, or it is in a failed queue with its reason."""
    states = await site.states()
    assert states.pop("slices")["failed"] == unreadable
    assert states["messages"].total() == readable
    assert {state for found in states.values() for state in found} == {"processed"}

    letters = await site.all_letters()
    assert {queue for queue, _ in letters} == {"archive.ingestion.failed", "parsing.failed"}
    for _, letter in letters:
        assert letter.abandoned_reason == "non_retryable"
        assert len(letter.last_error) > 20, letter
    async with site.connected() as headway:
        failed = await headway.find("slices", {"status": "failed"})
        threads = await headway.find("threads", limit=1_000)
    named = [one for queue, letter in letters for one in letter.document_ids]
    assert Counter(named) == Counter(each["_id"] for each in failed)
    for thread in threads:
        assert not thread["slices"], thread
        assert bool(thread["summary_id"]) == bool(thread["message_ids"]), thread


def events_ended(site: ConsensusSite) -> Counter[str]:
    rows = site.query("select queue, count(*) from headway_done group by queue")
    return Counter({str(queue): int(str(count)) for queue, count in rows})
