"""What is said of a collection in which there is no document: its name may be mistyped."""

from collections.abc import Sequence

from headway.core.decision import Decision, archive_of, archived_from
from headway.core.showing import shown
from headway.core.suggestion import nearest, suggestion
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
    if is_declared and nearest(place, there, cutoff=_NEAR) is None:
        return ""
    if not there:
        return f"There is no document in {shown(place)}, nor in any other collection."
    if is_restore:
        there = [of for of in map(archived_from, there) if of is not None]
        if not there:
            return f"There is no document in {shown(place)}: nothing was archived here."
    return f"There is no document in {shown(place)}: {_instead(collection, there)}"


def _instead(collection: str, there: Sequence[str]) -> str:
    return suggestion(shown(collection), map(shown, there))
