"""The mail pipeline is killed at every stage, and makes of its archives what it would have made."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from benchmarks.consensus.mailing_list import write_archives

from tests.chaos.consensus_runs import PIPELINE, ConsensusSite, ended_by_force
from tests.systems.consensus.hostile import UNREADABLE, mbox, message

HANDLERS = {
    "ingestion-ArchiveSubmitted",
    "parsing-ArchiveIngested",
    "parsing-ArchiveSliced",
    "chunking-JSONParsed",
    "embedding-ChunksPrepared",
    "orchestrator-EmbeddingsGenerated",
    "orchestrator-ThreadGathered",
    "summarization-SummarizationRequested",
    "reporting-SummaryComplete",
}


@pytest.mark.timeout(240)
async def test_killed_at_every_stage_it_finishes_the_same(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    first, second = archives(tmp_path / "archives", messages=60)
    undisturbed = site_in(tmp_path / "undisturbed")
    with undisturbed.running(PIPELINE, "--workers", "2"):
        await undisturbed.submit(*first, *second)
        await undisturbed.at_rest(60)
    expected = await undisturbed.final_set()
    assert expected.messages
    assert all(map(len, (expected.chunks, expected.vectors, expected.summaries, expected.pages)))

    site = site_in(tmp_path / "killed")
    (site.folder / "deaths").mkdir()
    await site.submit(*first)
    with site.running("deadly", "--workers", "2"):
        await site.at_rest(90)
    died = {mark.name for mark in (site.folder / "deaths").iterdir()}
    assert died == HANDLERS, "each has killed its process once"

    await site.submit(*second)
    kills = await kill_and_run_again(site, random.Random(60), kills=3)
    found = await site.final_set()
    assert not expected.differences(found), expected.differences(found)
    assert await reasons(site) == await reasons(undisturbed)
    verified = site.headway("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    record_property("shown", f"{found}, {len(died) + kills} SIGKILLs, verify 0")


async def kill_and_run_again(site: ConsensusSite, dice: random.Random, *, kills: int) -> int:
    """Kill all of it, start it again, and let it go to the end at last."""
    for _ in range(kills):
        kill_in_the_middle(site, dice.uniform(0.02, 0.3))
    assert site.left(), "the last kill was in the middle of it"
    with site.running(PIPELINE):
        await site.at_rest(60)
    return kills


def kill_in_the_middle(site: ConsensusSite, after: float) -> None:
    process = site.start("run", PIPELINE)
    with ended_by_force(process):
        site.wait(lambda: process.pid in site.workers(), "it has started")
        time.sleep(after)
        assert process.poll() is None


def archives(folder: Path, messages: int) -> tuple[Sequence[Path], Sequence[Path]]:
    """Write two halves of a list, of which the first ends in mail that nobody can read."""
    half, *rest = write_archives(folder, messages, each=messages // 2)
    silent = message(1, "> only what another has said\n")
    half.write_bytes(half.read_bytes() + mbox(*UNREADABLE.values(), silent))
    return [half], rest


def site_in(folder: Path) -> ConsensusSite:
    folder.mkdir()
    return ConsensusSite(folder)


async def reasons(site: ConsensusSite) -> Counter[tuple[str, ...]]:
    """Say of each letter where it is, why, and about which documents."""
    return Counter(
        (queue, letter.abandoned_reason, letter.error_type, *letter.document_ids)
        for queue, letter in await site.all_letters()
    )
