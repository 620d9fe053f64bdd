"""Documents that a handler defers wait for other work, and the attempt does not count."""

from datetime import timedelta
from typing import Any

import pytest

from headway import BlockingWork, ConfigurationError, Event, Lifecycle, Service, Work
from headway.retrying import TRANSIENT
from headway.testing.trial import Trial

A_WHILE = timedelta(minutes=20)
LEASES = pytest.mark.parametrize("lease", [None, timedelta(minutes=1)], ids=["", "leased"])


class Kitchen:
    """Dishes whose operations do as they are told: `fail`, `stumble`, `wait` or `cook`."""

    def __init__(
        self,
        *orders: str,
        lease: timedelta | None = None,
        max_attempts: int = 2,
        is_plain: bool = False,
    ) -> None:
        self.orders = list(orders)
        self.lifecycle = Lifecycle("dishes", max_attempts=max_attempts, lease=lease)
        service = Service("kitchen", lifecycles=[self.lifecycle])
        subscribe = service.on("DishOrdered", documents=("dishes", "ids"))
        subscribe(self._plain if is_plain else self._cook)
        self.trial = Trial(service)

    async def _cook(self, event: Event, work: Work) -> None:
        self._try(work)

    def _plain(self, event: Event, work: BlockingWork) -> None:
        self._try(work)

    def _try(self, work: Work | BlockingWork) -> None:
        order = self.orders[0] if self.orders else "wait"
        if order == "stumble" and work.attempt == 1:
            raise ConnectionResetError("the line is busy")
        if order == "fail" and work.attempt < TRANSIENT.max_attempts:
            raise RuntimeError("burnt")
        if self.orders:
            self.orders.pop(0)
        if order == "fail":
            raise RuntimeError("burnt for the last time")
        for each in work.document_ids:
            if order != "cook" and each != "salad":
                work.put_off(each)
                if order == "begin anew":
                    work.documents("dishes").update(each, self.lifecycle.anew())

    async def order(self, *ids: str, **fields: Any) -> None:
        dishes = ({"_id": one, "status": "pending", **fields} for one in ids)
        await self.trial.put("dishes", *dishes)
        await self.publish(*ids)

    async def publish(self, *ids: str) -> None:
        await self.trial.publish("DishOrdered", {"ids": list(ids)})
        await self.trial.run()

    async def sweep(self, after: timedelta = timedelta(days=2)) -> int:
        self.trial.clock.advance(after)
        swept = await self.trial.sweep()
        await self.trial.run()
        return sum(each.requeued for each in swept.collections)

    async def states(self) -> dict[str, tuple[Any, Any]]:
        dishes = await self.trial.documents("dishes")
        return {each["_id"]: (each["status"], each["attemptCount"]) for each in dishes}


@LEASES
@pytest.mark.parametrize("is_plain", [False, True], ids=["coroutine", "function"])
async def test_what_is_deferred_stays_pending_beside_what_is_done(
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
    kitchen = Kitchen(*["wait"] * 6, "cook", lease=lease)
    await kitchen.order("pie")
    for _ in range(5):  # more often than it may be attempted
        assert await kitchen.sweep(timedelta()) == 0
        assert await kitchen.sweep(A_WHILE) == 1
        assert await kitchen.states() == {"pie": ("pending", 0)}
    assert await kitchen.sweep(A_WHILE) == 1
    assert await kitchen.states() == {"pie": ("processed", 1)}


@LEASES
async def test_another_event_for_it_does_not_wait_and_forgets_no_attempt(
    lease: timedelta | None,
) -> None:
    kitchen = Kitchen("fail", "wait", "cook", lease=lease, max_attempts=5)
    await kitchen.order("pie")
    await kitchen.publish("pie")
    assert await kitchen.states() == {"pie": ("pending", 1)}
    began = kitchen.trial.clock.now()
    await kitchen.publish("pie")
    assert await kitchen.states() == {"pie": ("processed", 2)}
    assert kitchen.trial.clock.now() - began < timedelta(seconds=5)


@LEASES
@pytest.mark.parametrize(
    ("orders", "states"),
    [
        (
            ["fail", "wait", "wait", "fail"],
            [("failed", 1), ("pending", 1), ("pending", 1), ("failed", 2)],
        ),
        (["stumble", "wait", "stumble"], [("pending", 1), ("pending", 1), ("pending", 2)]),
    ],
    ids=["fails and waits in turn", "fails and then waits"],
)
async def test_an_operation_that_failed_is_counted_although_it_waited(
    orders: list[str], states: list[tuple[str, int]], lease: timedelta | None
) -> None:
    kitchen = Kitchen(*orders, lease=lease)
    await kitchen.order("pie")
    for state in states:
        assert await kitchen.states() == {"pie": state}
        await kitchen.sweep()
    assert await kitchen.states() == {"pie": ("failed_max_retries", 2)}
    (pie,) = await kitchen.trial.documents("dishes")
    assert pie["lastError"]["type"] in {"RuntimeError", "ConnectionResetError"}


async def test_a_handler_that_lets_a_document_begin_anew_and_waits_leaves_no_attempt() -> None:
    kitchen = Kitchen("begin anew", max_attempts=3)
    await kitchen.order("pie", attemptCount=2)
    assert await kitchen.states() == {"pie": ("pending", 0)}


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
    with pytest.raises(ConfigurationError, match="rebuild="):
        Service("other").on("DishOrdered", documents=("dishes", lambda event: [event.event_id]))(
            lambda event, work: None
        )
