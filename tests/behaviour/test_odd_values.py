"""A handler writes what no store keeps as it is: a dead letter, at once, that names the field."""

from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from headway import Service
from headway.retrying import Reason
from headway.testing.trial import Trial

ODD = {"size": {"width": nan}}
WRITES: dict[str, tuple[Callable[[Any], None], str]] = {
    "insert_new": (lambda documents: documents.insert_new({"_id": "b", **ODD}), "'size.width'"),
    "add": (lambda documents: documents.add(ODD), "'size.width'"),
    "update": (lambda documents: documents.update("a", ODD), "'size.width'"),
    "increment": (lambda documents: documents.increment("a", "n", 1), "'n'"),
}


@pytest.mark.parametrize("how", WRITES)
async def test_a_value_that_cannot_be_stored_is_not_dropped(how: str) -> None:
    write, field = WRITES[how]
    service, attempts = Service("s"), list[int]()

    @service.on("Made")
    async def handle(_event: Any, work: Any) -> None:
        attempts.append(work.attempt)
        write(work.documents("docs"))

    trial = Trial(service)
    await trial.put("docs", {"_id": "a", "n": (1 << 63) - 1})
    await trial.publish("Made", {})
    await trial.run()
    (letter,) = await trial.letters("s.failed")
    assert (attempts, letter.abandoned_reason) == ([1], Reason.NON_RETRYABLE)
    assert field in letter.last_error
    assert await trial.documents("docs") == [{"_id": "a", "n": (1 << 63) - 1}]
