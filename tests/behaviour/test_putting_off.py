"""Documents that are put off wait for the work of others, and nothing is held against them."""

from datetime import timedelta
from typing import Any

import pytest

from headway import BlockingWork, ConfigurationError, Event, Lifecycle, Service, Work
from headway.retrying import TRANSIENT
from headway.testing.trial import Trial

A_WHILE = timedelta(minutes=20)
LEASES = pytest.mark.parametrize("lease", [None, timedelta(minutes=1)], ids=["", "leased"])


class Kitchen:
    """Dishes wait for an oven; a sweep asks for them again and again."""

    def __init__(self, *, lease: timedelta | None, is_plain: bool = False) -> None:
        self.is_warm = False
        self.tried: list[str] = []
        service = Service("kitchen", lifecycles=[Lifecycle("dishes", max_attempts=2, lease=lease)])
        subscribe = service.on("DishOrdered", documents=("dishes", "ids"))
        subscribe(self._plain if is_plain else self._cook)
        self.trial = Trial(service)

    async def _cook(self, event: Event, work: Work) -> None:
        self._try(work)

    def _plain(self, event: Event, work: BlockingWork) -> None:
        self._try(work)

    def _try(self, work: Work | BlockingWork) -> None:
        for each in work.document_ids:
            self.tried.append(each)
            if not self.is_warm and each != "salad":
                work.put_off(each)

    async def order(self, *ids: str) -> None:
        await self.trial.put("dishes", *({"_id": one, "status": "pending"} for one in ids))
        await self.trial.publish("DishOrdered", {"ids": list(ids)})
        await self.trial.run()

    async def sweep(self) -> int:
        swept = await self.trial.sweep()
        await self.trial.run()
        return sum(each.requeued for each in swept.collections)

    async def states(self) -> dict[str, tuple[Any, Any]]:
        dishes = await self.trial.documents("dishes")
        return {each["_id"]: (each["status"], each["attemptCount"]) for each in dishes}


@LEASES
@pytest.mark.parametrize("is_plain", [False, True], ids=["coroutine", "function"])
async def test_what_is_put_off_stays_pending_beside_what_is_done(
    lease: timedelta | None, *, is_plain: bool
) -> None:
    kitchen = Kitchen(lease=lease, is_plain=is_plain)
    await kitchen.order("pie", "salad")
    assert await kitchen.states() == {"pie": ("pending", 0), "salad": ("processed", 1)}
    assert await kitchen.trial.letters("kitchen.failed") == []


@LEASES
async def test_it_is_left_alone_for_a_while_and_then_swept_however_often(
    lease: timedelta | None,
) -> None:
    kitchen = Kitchen(lease=lease)
    await kitchen.order("pie")
    for _ in range(5):  # more often than it may be attempted
        assert await kitchen.sweep() == 0
        kitchen.trial.clock.advance(A_WHILE)
        assert await kitchen.sweep() == 1
        assert await kitchen.states() == {"pie": ("pending", 0)}
    kitchen.is_warm = True
    kitchen.trial.clock.advance(A_WHILE)
    assert await kitchen.sweep() == 1
    assert await kitchen.states() == {"pie": ("processed", 1)}


@LEASES
async def test_another_event_for_it_is_not_kept_waiting(lease: timedelta | None) -> None:
    kitchen = Kitchen(lease=lease)
    await kitchen.order("pie")
    kitchen.is_warm = True
    began = kitchen.trial.clock.now()
    await kitchen.trial.publish("DishOrdered", {"ids": ["pie"]})
    await kitchen.trial.run()
    assert await kitchen.states() == {"pie": ("processed", 1)}
    assert kitchen.trial.clock.now() - began < timedelta(seconds=5)


async def test_only_documents_of_the_event_can_be_put_off() -> None:
    service = Service("kitchen")

    @service.on("DishOrdered", documents=("dishes", "ids"))
    async def cook(event: Event, work: Work) -> None:
        work.put_off("soup")

    trial = Trial(service)
    await trial.put("dishes", {"_id": "pie"})
    await trial.publish("DishOrdered", {"ids": ["pie"]})
    await trial.run()
    (letter,) = await trial.letters("kitchen.failed")
    assert "'soup' cannot be put off: it is not in work.document_ids" in letter.last_error


# Which documents an event is about, where no field holds their ids


async def test_a_function_of_the_event_names_its_documents() -> None:
    service, done = Service("kitchen"), list[tuple[str, ...]]()

    @service.on(
        "DishOrdered",
        documents=("dishes", lambda event: [f"dish-{event.data['number']}"]),
        rebuild=lambda dish: {"number": int(dish["_id"].removeprefix("dish-"))},
    )
    async def cook(event: Event, work: Work) -> None:
        done.append(work.document_ids)

    trial = Trial(service)
    await trial.put("dishes", {"_id": "dish-1"}, {"_id": "dish-2"})
    await trial.publish("DishOrdered", {"number": 1})
    await trial.run()
    await trial.sweep()
    await trial.run()
    assert done == [("dish-1",), ("dish-2",)]
    assert [each["status"] for each in await trial.documents("dishes")] == ["processed"] * 2


def test_then_it_has_to_be_said_how_an_event_is_made_again() -> None:
    with pytest.raises(ConfigurationError, match="Use rebuild= with it"):
        Service("kitchen").on("DishOrdered", documents=("dishes", lambda event: [event.event_id]))(
            lambda event, work: None
        )


# Attempts that were counted before


class Troubled:
    """A kitchen whose operations do as they are told: `fail`, `stumble` or `wait`."""

    def __init__(self, *orders: str, lease: timedelta | None, max_attempts: int = 2) -> None:
        self.orders = list(orders)
        lifecycle = Lifecycle("dishes", max_attempts=max_attempts, lease=lease)
        self.service = Service("kitchen", lifecycles=[lifecycle])
        self.service.on("DishOrdered", documents=("dishes", "ids"))(self._cook)
        self.trial = Trial(self.service)

    async def _cook(self, event: Event, work: Work) -> None:
        order = self.orders[0] if self.orders else "wait"
        if order == "stumble" and work.attempt == 1:
            raise ConnectionResetError("the line is busy")
        if order == "fail" and work.attempt < TRANSIENT.max_attempts:
            raise RuntimeError("burnt")
        if self.orders:
            self.orders.pop(0)
        if order == "fail":
            raise RuntimeError("burnt for the last time")
        if order != "cook":
            for each in work.document_ids:
                work.put_off(each)

    async def begin(self) -> None:
        await self.trial.put("dishes", {"_id": "pie", "status": "pending"})
        await self.trial.publish("DishOrdered", {"ids": ["pie"]})
        await self.trial.run()

    async def sweep(self) -> tuple[Any, Any]:
        self.trial.clock.advance(timedelta(days=2))
        await self.trial.sweep()
        await self.trial.run()
        return await self.state()

    async def state(self) -> tuple[Any, Any]:
        (pie,) = await self.trial.documents("dishes")
        return pie["status"], pie["attemptCount"]


@LEASES
async def test_what_fails_and_waits_in_turn_is_given_up(lease: timedelta | None) -> None:
    kitchen = Troubled("fail", "wait", "wait", "fail", lease=lease)
    await kitchen.begin()
    assert await kitchen.state() == ("failed", 1)
    assert await kitchen.sweep() == ("pending", 1)
    assert await kitchen.sweep() == ("pending", 1)
    assert await kitchen.sweep() == ("failed", 2)
    assert await kitchen.sweep() == ("failed_max_retries", 2)
    assert kitchen.orders == []


@LEASES
async def test_an_operation_that_fails_and_then_waits_is_counted(lease: timedelta | None) -> None:
    kitchen = Troubled("stumble", "wait", "stumble", lease=lease)
    await kitchen.begin()
    assert await kitchen.state() == ("pending", 1)
    (pie,) = await kitchen.trial.documents("dishes")
    assert pie["lastError"]["type"] == "ConnectionResetError"
    assert await kitchen.sweep() == ("pending", 1)
    assert await kitchen.sweep() == ("pending", 2)
    assert await kitchen.sweep() == ("failed_max_retries", 2)


@LEASES
async def test_another_event_that_waits_does_not_forget_attempts(lease: timedelta | None) -> None:
    kitchen = Troubled("fail", "wait", "cook", lease=lease, max_attempts=5)
    await kitchen.begin()
    await kitchen.trial.publish("DishOrdered", {"ids": ["pie"]})
    await kitchen.trial.run()
    assert await kitchen.state() == ("pending", 1)
    await kitchen.trial.publish("DishOrdered", {"ids": ["pie"]})
    await kitchen.trial.run()
    assert await kitchen.state() == ("processed", 2)


async def test_a_handler_that_lets_a_document_begin_anew_and_waits_leaves_no_attempt() -> None:
    lifecycle = Lifecycle("dishes", max_attempts=3)
    service = Service("kitchen", lifecycles=[lifecycle])

    @service.on("DishOrdered", documents=("dishes", "ids"))
    async def cook(event: Event, work: Work) -> None:
        for each in work.document_ids:
            work.put_off(each)
            work.documents("dishes").update(each, lifecycle.anew())

    trial = Trial(service)
    await trial.put("dishes", {"_id": "pie", "status": "pending", "attemptCount": 2})
    await trial.publish("DishOrdered", {"ids": ["pie"]})
    await trial.run()
    (pie,) = await trial.documents("dishes")
    assert (pie["status"], pie["attemptCount"]) == ("pending", 0)
