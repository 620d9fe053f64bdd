"""`Trial`, as those see it who test their services with it."""

import logging
from datetime import timedelta

import pytest

from headway import ConfigurationError, Event, RetryConfig, Service, Work
from headway.testing.trial import Trial

orders = Service("orders")
mail = Service("mail", failed_queue="mail.outbox.failed")


@orders.on("OrderPlaced")
async def on_placed(event: Event, work: Work) -> None:
    if event.data.get("late") and work.attempt == 1:
        raise ConnectionError("no answer")
    if event.data.get("bad"):
        raise ValueError("no such order")


@mail.on("OrderPlaced")
async def send(event: Event, work: Work) -> None:
    if event.data.get("bad"):
        raise ValueError("no such address")


async def test_dead_letters_are_given_by_queue_or_service() -> None:
    trial = Trial(orders, mail)
    await trial.publish("OrderPlaced", {"bad": True})
    await trial.run()
    for meant, error in {
        "orders.failed": "no such order",
        "orders": "no such order",
        "mail.outbox.failed": "no such address",
        "mail": "no such address",
    }.items():
        (letter,) = await trial.letters(meant)
        assert letter.last_error == f"ValueError: {error}"
    for wrong, named in {"oders": r"orders\.failed\?", "s": r"orders\.failed, mail"}.items():
        with pytest.raises(ConfigurationError, match=named):
            await trial.letters(wrong)


async def test_a_trial_writes_the_log_lines_of_production(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headway")
    parsing = Service("parsing")
    parsing.on("MailReceived", documents=("messages", "message_id"))(send)
    trial = Trial(orders, parsing)
    await trial.publish("OrderPlaced", {"late": True})
    await trial.publish("OrderPlaced", {"bad": True})
    await trial.publish("OrderPlacd")
    await trial.run()
    await trial.sweep()
    said = [(each.levelname, each.getMessage()) for each in caplog.records]
    for level, words in [
        ("WARNING", "Operation failed (attempt 1/3): ConnectionError: no answer"),
        ("INFO", "Event processed successfully after 1 retry attempt"),
        ("ERROR", "ValueError: no such order"),
        ("WARNING", "No service takes OrderPlacd"),
        ("WARNING", "Did you mean OrderPlaced?"),
        ("INFO", "Sweep"),
    ]:
        assert any(level == each and words in line for each, line in said), (words, said)
    assert {each.name for each in caplog.records} == {"headway"}


async def test_a_collection_that_nothing_was_written_to_is_not_taken_for_another() -> None:
    trial = Trial(orders)
    await trial.put("orders", {"_id": "a"})
    with pytest.raises(AssertionError, match=r"documents\('oders'\).*mean 'orders'\?"):
        await trial.documents("oders")
    assert await trial.documents("invoices") == []


async def test_results_of_a_trial_that_never_ran_are_not_given() -> None:
    trial = Trial(orders)
    assert await trial.documents("orders") == []
    await trial.publish("OrderPlaced")
    for read in (trial.documents("orders"), trial.letters("orders")):
        with pytest.raises(AssertionError, match=r"1 ready in orders\.order\.placed"):
            await read
    await trial.run()
    assert await trial.letters("orders") == []


@pytest.mark.parametrize("at_most", [None, timedelta(minutes=1)])
async def test_a_run_that_ends_with_work_left_says_so(
    at_most: timedelta | None, caplog: pytest.LogCaptureFixture
) -> None:
    again = Service("again")

    @again.on("Tick")
    async def tick(event: Event, work: Work) -> None:
        await work.documents("orders").require("late")

    hours = timedelta(hours=20)
    retry = RetryConfig(max_attempts=20, base_delay=hours, max_delay=hours, ttl=timedelta(days=5))
    trial = Trial(again, retry=retry)
    await trial.publish("Tick")
    if at_most is None:
        with pytest.raises(AssertionError, match=r"events left: 1 \w+ in again\.tick"):
            await trial.run()
    else:
        await trial.run(at_most=at_most)
        assert "Trial.run(at_most=0:01:00) ended with events left: 1 " in caplog.text
