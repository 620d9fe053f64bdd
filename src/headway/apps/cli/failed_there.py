"""What is said of an error type that no dead letter has: its name may be mistyped."""

from collections.abc import Collection

from headway.core.showing import shown
from headway.core.suggestion import suggestion
from headway.runtime.failed import FailedQueues

_NAMED = 20


async def why_none(
    queues: FailedQueues, queue: str, error_type: str | None, chosen: Collection[object] | None
) -> str:
    """Say which error types there are, if none was chosen by this one; every letter is read."""
    if error_type is None or chosen:
        return ""
    name = await queues.find(queue)
    there = sorted({letter.error_type async for letter in queues.export(name)})
    if error_type in there:  # it came meanwhile
        return ""
    if not there:
        return f"No dead letter is in {shown(name)}."
    return (
        f"No dead letter of {shown(name)} has the error type {shown(error_type)}: "
        f"{suggestion(error_type, map(shown, there))}"
    )
