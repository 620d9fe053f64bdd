"""Whatever a handler does, its event ends, and its neighbours are none the worse for it."""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from headway import ConfigurationError, Event, Service, Work
from headway.retrying import Classifier, Diagnosis
from headway.testing.trial import Trial


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise SystemExit


class CauselessError(Exception):
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise RuntimeError("no cause can be had")


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt,
        GeneratorExit,
        lambda: SystemExit(3),
        UnreadableError,
        CauselessError,
        lambda: SyntaxError("x", ("f", 1, "bad", "text")),  # type: ignore[arg-type]
        lambda: BaseExceptionGroup("many", [KeyboardInterrupt(), ValueError()]),
        lambda: ValueError("x" * 5_000_000),
        lambda: ValueError(bytes(range(256)).hex("-") * 1_000),
    ],
)
async def test_whatever_is_raised_the_event_ends_and_its_neighbours_are_done(
    error: Callable[[], BaseException],
) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        if event.data["bad"]:
            raise error()
        work.documents("orders").add({})

    trial = Trial(orders)
    for number in range(5):
        await trial.publish("OrderPlaced", {"bad": number == 2})
    await trial.run(at_most=timedelta(hours=1))
    assert len(await trial.documents("orders")) == 4
    (letter,) = await trial.letters("orders.failed")
    assert letter.error_type
    assert len(letter.last_error) <= 1_000


async def sub_generator(event: Event, work: Work) -> Any:
    yield


def made(make: Callable[..., Any], event: Event, work: Work) -> Any:
    return make(event, work)


def generator(event: Event, work: Work) -> Any:
    yield


@pytest.mark.parametrize("handler", [generator, sub_generator])
def test_a_generator_is_no_handler(handler: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="runs nothing"):
        Service("orders").on("OrderPlaced")(handler)


async def test_a_function_that_gives_back_a_generator_has_failed() -> None:
    orders = Service("orders")
    orders.on("OrderPlaced")(partial(made, generator))
    trial = Trial(orders)
    await trial.publish("OrderPlaced")
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert letter.error_type == "TypeError"


async def test_a_key_that_cannot_be_written_down_ends_its_event_only() -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", dedup=lambda event: os.fsdecode(event.data["name"].encode("latin-1")))
    async def handle(event: Event, work: Work) -> None:
        work.documents("orders").add({})

    trial = Trial(orders)
    for name in ("a", "caf\xe9", "b"):
        await trial.publish("OrderPlaced", {"name": name})
    await trial.run(at_most=timedelta(hours=1))
    assert len(await trial.documents("orders")) == 2
    (letter,) = await trial.letters("orders.failed")
    assert letter.error_type == "UnicodeEncodeError"


async def test_a_document_that_somebody_spoilt_stops_nobody() -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", documents=("messages", "id"))
    async def handle(event: Event, work: Work) -> None:
        work.documents("orders").add({})

    trial = Trial(orders)
    await trial.put("messages", {"_id": "a", "attemptCount": "two"}, {"_id": "b"})
    for each in ("a", "b"):
        await trial.publish("OrderPlaced", {"id": each})
    await trial.run(at_most=timedelta(hours=1))
    assert len(await trial.documents("orders")) == 2
    assert [each["attemptCount"] for each in await trial.documents("messages")] == [1, 1]


async def test_different_work_is_told_apart_though_its_ids_look_alike_in_a_row() -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", dedup="ids")
    async def handle(event: Event, work: Work) -> None:
        work.documents("orders").add({"ids": event.data["ids"]})

    trial = Trial(orders)
    alike = (["2026-01", "05"], ["2026", "01-05"], ["2026-01-05"], ["2026", "01", "05"])
    for ids in (*alike, *alike):
        await trial.publish("OrderPlaced", {"ids": ids})
    await trial.run()
    assert len(await trial.documents("orders")) == len(alike)


@pytest.mark.parametrize(
    "write",
    [
        lambda work: work.documents("orders").add({"_id": "a"}),
        lambda work: work.documents("orders").update("a", {"_id": "b"}),
        lambda work: work.documents("orders").update(5, {}),
        lambda work: work.documents("orders").increment("a", "n", float("inf")),
        lambda work: work.documents("orders").increment("a", "n", "1"),
        lambda work: work.publish(5, {}),
        lambda work: work.publish("OrderShipped", [1]),
        lambda work: work.publish("OrderShipped", {}, event_id=5),
    ],
)
async def test_what_no_store_or_receiver_could_take_is_refused_where_it_is_written(
    write: Callable[[Work], None],
) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        write(work)

    trial = Trial(orders)
    await trial.publish("OrderPlaced")
    await trial.run()
    (letter,) = await trial.letters("orders.failed")
    assert letter.abandoned_reason == "non_retryable"
    assert letter.error_type in {"ValueError", "ConfigurationError", "MalformedEventError"}


class RaisingClassifier(Classifier):
    def classify(self, error: BaseException) -> Diagnosis:
        raise TypeError("a rule of the user's own")


async def test_an_event_whose_classifier_raises_is_a_dead_letter() -> None:
    orders = Service("orders", classifier=RaisingClassifier(rules=()))

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        if event.data["bad"]:
            raise ValueError("bad")
        work.documents("orders").add({})

    trial = Trial(orders)
    for number in range(5):
        await trial.publish("OrderPlaced", {"bad": number == 2})
    await trial.run(at_most=timedelta(hours=1))
    assert len(await trial.documents("orders")) == 4
    assert len(await trial.letters("orders.failed")) == 1
