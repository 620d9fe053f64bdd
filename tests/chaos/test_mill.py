"""Stuck documents, two sweepers, four services; workers, sweepers and the database are killed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.testing.servers import MongoDB, RabbitMQ
from tests.chaos.milling import (
    BrokerMill,
    FileMill,
    Mill,
    assert_all_is_well,
    hardship,
    prepare,
    seed,
    staffed,
    wait_for_the_end,
)

Record = Callable[[str, object], None]


@pytest.mark.timeout(300)
def test_in_one_file_every_stuck_document_comes_to_an_end(
    tmp_path: Path, record_property: Record
) -> None:
    mill(FileMill(tmp_path, limit=8), None, record_property, documents=1_000, stuck=200, kills=5)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_in_one_file_five_thousand_of_a_hundred_thousand(
    tmp_path: Path, record_property: Record
) -> None:
    mill(FileMill(tmp_path), None, record_property, documents=100_000, stuck=5_000, kills=30)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_on_mongodb_and_rabbitmq_five_thousand_of_a_hundred_thousand(
    tmp_path: Path, record_property: Record
) -> None:
    with RabbitMQ() as broker, MongoDB() as database:
        site = BrokerMill(tmp_path, broker=broker.create_vhost(), store=database.create_database())
        mill(site, database, record_property, documents=100_000, stuck=5_000, kills=30)


def mill(
    site: Mill,
    database: MongoDB | None,
    record_property: Record,
    *,
    documents: int,
    stuck: int,
    kills: int,
) -> None:
    prepare(site)
    with staffed(site) as staff:
        site.wait(lambda: site.log().count("Running mill-") >= 4, "4 services have started")
        names = seed(site, documents, stuck)
        died = hardship(staff, database, kills=kills, every=1.2, database_kills=3)
        wait_for_the_end(site, staff, seconds=300)
        staff.go_home()
    seen = assert_all_is_well(site, staff, names, documents)
    record_property("shown", f"{seen}, the database killed {died} times")
