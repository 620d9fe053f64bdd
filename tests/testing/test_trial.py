"""`Trial`, as those see it who test their services with it."""

import logging

import pytest

from headway import ConfigurationError, Event, Service, Work
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
