"""A handler writes what no store keeps as it is: a letter, at once, that names the field."""

from math import nan
from typing import Any

import pytest

from headway import Service
from headway.retrying import Reason
from headway.testing.trial import Trial


@pytest.mark.parametrize("how", ["insert_new", "add", "update", "increment"])
async def test_a_value_that_cannot_be_stored_is_not_dropped(how: str) -> None:
    service = Service("s")
    attempts: list[int] = []

    @service.on("Made")
    async def handle(_event: Any, work: Any) -> None:
        attempts.append(work.attempt)
        documents = work.documents("docs")
        odd = {"size": {"width": nan}}
        match how:
            case "insert_new":
                documents.insert_new({"_id": "b", **odd})
            case "add":
                documents.add(odd)
            case "update":
                documents.update("a", odd)
            case _:
                documents.increment("a", "n", 1)

    trial = Trial(service)
    await trial.put("docs", {"_id": "a", "n": (1 << 63) - 1})
    await trial.publish("Made", {})
    await trial.run()
    (letter,) = await trial.letters("s.failed")
    assert attempts == [1]
    assert letter.abandoned_reason == Reason.NON_RETRYABLE
    named = "the field 'n' holds a whole" if how == "increment" else "'size.width' holds nan"
    assert named in letter.last_error
    assert await trial.documents("docs") == [{"_id": "a", "n": (1 << 63) - 1}]
