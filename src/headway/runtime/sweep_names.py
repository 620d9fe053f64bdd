"""Collections whose names are perhaps mistyped: nothing is in them, and in others there is."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from headway.core.decision import archived_from
from headway.ports.desk import DocumentDesk
from headway.runtime.sweep_targets import Target

_NEAR = 0.8


async def misnamed(targets: Sequence[Target], desk: DocumentDesk) -> Mapping[str, str]:
    """Give, for a collection without any document, one of nearly the same name that has some."""
    there = await desk.collections()
    names = [target.collection for target in targets]
    others = [each for each in there if each not in names and archived_from(each) is None]
    near = {
        name: get_close_matches(name, others, n=1, cutoff=_NEAR)
        for name in names
        if name not in there
    }
    return {name: found[0] for name, found in near.items() if found}
