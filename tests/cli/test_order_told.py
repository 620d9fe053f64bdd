"""What `headway order` says is true, also where it does not know everything."""

import asyncio
import json
from pathlib import Path

import pytest

from headway import Resequencer
from headway.order import Turn
from tests.cli.offices import Office


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(f"sqlite:///{tmp_path}/shop.db")


def test_a_name_that_never_kept_anything_is_told_from_one_that_holds_nothing_now(
    office: Office,
) -> None:
    office.hold("a", 1, family="parcels")
    office.hold("a", 1, family="orders")
    said = "No resequencer named uptime has ever kept anything there. These have:\n"
    commands = [
        f"  headway order status --name {name} --sequences {office.url}\n"
        for name in ("orders", "parcels")
    ]
    assert office("status").stdout == said + "".join(commands)
    done = office("status", "--name", "parcels").stdout
    assert done == "No key of parcels holds anything now.\n"


def test_a_drain_does_not_claim_what_only_the_workers_know(office: Office) -> None:
    office.hold("a", 1, 3, family="orders")
    words = ["a", "--name", "orders"]
    assert "1 position given up, 1 held result released" in office("drain", *words, "--yes").stdout
    explained = " ".join(office("explain", *words).stdout.split())
    assert "no --settings given" not in explained, "it is ready: nothing is reckoned"
    office.hold("b", 1, 3, family="orders")
    explained = " ".join(office("explain", "b", "--name", "orders").stdout.split())
    assert "what becomes of a gap are the usual ones: no --settings given" in explained
    record = json.loads(office("drain", "b", *words[1:], "--yes").stderr.splitlines()[-1])
    assert "on_gap" not in record
    assert (record["gaps"], record["held"]) == ({"b": [[2, 2, 1]]}, 1)


def test_a_result_that_cannot_be_applied_says_where_the_error_is(office: Office) -> None:
    def apply(_work: Turn) -> None:
        raise ValueError("not today")

    async def fail() -> None:
        async with Resequencer(apply, url=office.url, name="orders") as orders:
            assert await orders.offer("a", 1) == "held"

    asyncio.run(fail())
    said = " ".join(office("explain", "a", "--name", "orders").stdout.split())
    assert "paused: 1 could not be applied, after 1 attempt" in said
    assert 'The error is in the log of the worker that tried it ("could not be applied").' in said
