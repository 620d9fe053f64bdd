"""What is said of a collection in which there is no document: its name may be mistyped."""

from collections.abc import Sequence
from difflib import get_close_matches

from headway.core.decision import Decision, archive_of, archived_from
from headway.core.showing import shown
from headway.runtime.documents import StoredDocuments

_NAMED = 20
_NEAR = 0.8


async def nothing_in(
    documents: StoredDocuments,
    collection: str,
    decision: Decision | None = None,
    *,
    is_declared: bool = False,
) -> str:
    """Say that a collection is empty, and what there is instead; nothing, if it is not empty.

    What is to be restored is in the archive of the collection. One that a service declares may be
    empty, unless there is another of nearly the same name.
    """
    is_restore = decision is Decision.RESTORE
    place = archive_of(collection) if is_restore else collection
    if await documents.exists(place):
        return ""
    there = await documents.collections()
    if is_declared and not get_close_matches(place, there, n=1, cutoff=_NEAR):
        return ""
    if not there:
        return f"There is no document in {shown(place)}, nor in any other collection."
    if is_restore:
        there = [of for of in map(archived_from, there) if of is not None]
        if not there:
            return f"There is no document in {shown(place)}: nothing was archived here."
    return f"There is no document in {shown(place)}: {_instead(collection, there)}"


def _instead(collection: str, there: Sequence[str]) -> str:
    near = get_close_matches(collection, there, n=1)
    meant = f"did you mean {shown(near[0])}? There are: " if near else "there are: "
    return meant + ", ".join(map(shown, there[:_NAMED])) + ", ..." * (len(there) > _NAMED)
