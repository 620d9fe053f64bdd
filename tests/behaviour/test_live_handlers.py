"""Workers in different processes that take each other's work: each says so once."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import Event, Lifecycle, Service, Work, run_services
from headway.testing import Trial
from headway.testing.engines import Worker

HERE = re.compile(r"test_live_handlers\.py:\d+")
MINUTE = timedelta(minutes=1)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def mailing(version: str = "", name: str = "orders", **arguments: Any) -> Service:
    service = Service(name, version=version)

    @service.on("OrderPlaced", **arguments)
    async def mail(event: Event, work: Work) -> None: ...

    return service


def billing(version: str = "", event_type: str = "OrderPlaced", **arguments: Any) -> Service:
    service = Service("orders", version=version)

    @service.on(event_type, **arguments)
    async def bill(event: Event, work: Work) -> None: ...

    return service


@asynccontextmanager
async def beside(*programs: Service) -> AsyncIterator[Trial]:
    """Run each service in a worker of its own, on one engine."""
    trial = Trial(programs[0])
    others: Sequence[Trial] = [Trial(each, clock=trial.clock) for each in programs[1:]]
    for other in others:
        other.state = trial.state
    running = [each.running() for each in (trial, *others)]
    for each in running:
        await each.__aenter__()
    await trial.clock.wait(3 * MINUTE)
    yield trial
    for each in running:
        await each.__aexit__(None, None, None)


async def test_two_programs_with_one_service_and_other_handlers_are_named_by_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with beside(mailing(), billing(), billing()):
        pass
    said = warnings(caplog)
    assert len(said) == 3  # each of the three workers, once
    for line in said:
        assert len(HERE.findall(line)) == 2
        assert "mailing.mail" in line
        assert "billing.bill" in line
        assert "Service(version=)" in line


@pytest.mark.parametrize(
    "programs",
    [
        [mailing(), mailing()],
        [mailing("1"), billing("2")],
        [mailing(), billing(event_type="OrderPaid")],
        [mailing(name="mails"), billing()],
    ],
    ids=["one program", "a roll-out", "other events", "other services"],
)
async def test_workers_that_share_no_events_or_are_rolled_out_are_not_named(
    programs: Sequence[Service], caplog: pytest.LogCaptureFixture
) -> None:
    async with beside(*programs):
        pass
    assert warnings(caplog) == []


async def test_a_worker_that_has_stopped_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    async with beside(mailing()) as trial:
        pass
    after = Trial(billing(), clock=trial.clock)
    after.state = trial.state
    async with after.running():
        await trial.clock.wait(MINUTE)
    assert warnings(caplog) == []


async def test_two_programs_on_one_file_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'headway.db'}"
    workers: list[Worker] = []
    programs = [
        asyncio.create_task(
            run_services(each, bus=url, started=lambda worker, _: workers.append(worker))
        )
        for each in (mailing(), billing())
    ]
    async with asyncio.timeout(30):
        while not warnings(caplog):  # noqa: ASYNC110 (the log has no event)
            await asyncio.sleep(0.01)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*programs)
    assert all("OrderPlaced" in each for each in warnings(caplog))


# One status is one stage


ABOUT: dict[str, Any] = {"documents": ("orders", "order_id")}


async def test_two_stages_on_one_collection_in_two_workers_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with beside(mailing(name="mails", **ABOUT), billing(event_type="OrderPaid", **ABOUT)):
        pass
    said = warnings(caplog)
    assert len(said) == 2
    for line in said:
        assert len(HERE.findall(line)) == 2
        assert "documents of orders" in line


async def test_one_function_in_two_services_is_one_stage(caplog: pytest.LogCaptureFixture) -> None:
    async with beside(mailing(name="mails", **ABOUT), mailing(name="again", **ABOUT)):
        pass
    assert warnings(caplog) == []


async def test_documents_that_another_worker_is_about_do_not_stay_pending(
    caplog: pytest.LogCaptureFixture,
) -> None:
    orders = Service("placing", lifecycles=[Lifecycle("orders")])

    @orders.on("OrderMade")
    async def place(event: Event, work: Work) -> None:
        work.documents("orders").insert_new({"_id": "o-1"})

    async with beside(orders, mailing(name="mails", **ABOUT)) as trial:
        await trial.publish("OrderMade")
        await trial.clock.wait(3 * MINUTE)
    assert warnings(caplog) == []
