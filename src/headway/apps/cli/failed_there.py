"""What is said of an error type that no dead letter has: its name may be mistyped."""

from collections.abc import Collection
from difflib import get_close_matches

from headway.core.showing import shown
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
    near = get_close_matches(error_type, there, n=1)
    meant = f"did you mean {shown(near[0])}? There are: " if near else "there are: "
    more = ", ..." * (len(there) > _NAMED)
    return (
        f"No dead letter of {shown(name)} has the error type {shown(error_type)}: {meant}"
        f"{', '.join(map(shown, there[:_NAMED]))}{more}."
    )
