"""Ids that a person or a program names: checked, and completed from a prefix."""

from collections.abc import Collection, Iterable, Sequence

from headway.core.errors import ConfigurationError
from headway.core.showing import shown

SHORTEST_PREFIX = 4
"""Characters: shorter words are ids or nothing, never the beginning of one."""
_CANDIDATES = 5


def checked_ids(name: str, ids: Collection[str] | None) -> tuple[str, ...] | None:
    """Give ids without repetitions; None means that no ids were named.

    Raises:
        ConfigurationError: The collection is empty, or one of the ids is. Both come from a variable
            that was not set, and must not mean "all" or "any".
    """
    if ids is None:
        return None
    if isinstance(ids, str | bytes):
        raise ConfigurationError(f"Invalid {name}={ids!r}: use a list of ids, such as [{ids!r}].")
    if not ids:
        raise ConfigurationError(f"Invalid {name}=[]: name at least one id, or pass None for all.")
    for each in ids:
        if not each.strip():
            named = f"{name} {each!r}" if name.startswith("-") else f"{name}={[*ids]!r}"
            raise ConfigurationError(f"Invalid {named}: an id cannot be empty. Unset variable?")
    return tuple(dict.fromkeys(ids))


class Prefixes:
    """Complete typed ids while the ids that exist pass by."""

    def __init__(self, typed: Iterable[str]) -> None:
        self._typed = list(typed)
        self._exact: set[str] = set()
        self._begin: dict[str, list[str]] = {one: [] for one in self._typed}

    @property
    def are_exact(self) -> bool:
        """True: each typed word has been met as an id, and further ids change nothing."""
        return self._exact.issuperset(self._typed)

    def meet(self, one: str) -> None:
        """Compare an id that exists."""
        for typed, found in self._begin.items():
            if one == typed:
                self._exact.add(typed)
            elif len(typed) >= SHORTEST_PREFIX and one.startswith(typed):
                found.append(one)

    def completed(self, name: str) -> Sequence[str]:
        """Give the full id for each typed word; a word that fits nothing stays as it is.

        Raises:
            ConfigurationError: Several ids begin with one of the words, or it is too short.
        """
        return [self._completed(name, typed) for typed in self._typed]

    def _completed(self, name: str, typed: str) -> str:
        found = self._begin[typed]
        if typed in self._exact:
            return typed
        if len(typed) < SHORTEST_PREFIX:
            raise ConfigurationError(
                f"Invalid {name} {shown(typed)!r}: too short. Type at least {SHORTEST_PREFIX} "
                "characters of the id."
            )
        if not found:
            return typed
        if len(found) > 1:
            few = ", ".join(map(shown, found[:_CANDIDATES])) + ", ..." * (len(found) > _CANDIDATES)
            raise ConfigurationError(
                f"Invalid {name} {shown(typed)!r}: {len(found)} ids begin with it ({few}). Type "
                "more characters."
            )
        return found[0]
