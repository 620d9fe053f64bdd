"""Read through a failed queue: every letter once, whoever adds or removes some meanwhile."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from headway.core.errors import LetterGoneError
from headway.core.ids import checked_ids
from headway.core.letter import Letter
from headway.ports.letters import Letters

_PAGE = 100
_IDS_SAID = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Select dead letters; each condition that is set must hold."""

    ids: Collection[str] | None = None
    """Exactly these. None: any."""
    error_type: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        ids = checked_ids("ids", self.ids)
        object.__setattr__(self, "ids", None if ids is None else frozenset(ids))

    def means(self, letter: Letter) -> bool:
        return self.names(letter) and self.has_error(letter)

    def names(self, letter: Letter) -> bool:
        return self.ids is None or letter.letter_id in self.ids

    def has_error(self, letter: Letter) -> bool:
        return self.error_type is None or letter.error_type == self.error_type

    def words(self) -> str:
        """Describe the selection, for the history."""
        ids = sorted(self.ids or ())
        few = ",".join(ids[:_IDS_SAID]) + ",..." * (len(ids) > _IDS_SAID)
        said = [f"ids={few}"] if ids else []
        said += [f"error_type={self.error_type}"] if self.error_type is not None else []
        said += [f"limit={self.limit}"] if self.limit is not None else []
        return " ".join(said) or "all"


async def walk(letters: Letters, queue: str, after: str | None = None) -> AsyncIterator[Letter]:
    """Give every letter once, in the order in which they came.

    The next page is asked for before the letters of this one are given out: whoever gets them may
    remove them, and after a letter that has gone nobody can say what comes next. If somebody else
    has removed the last of a page, the walk begins again and passes over what it has given.
    LetterGoneError: `after` itself has gone.
    """
    given: set[str] = set()
    page: Sequence[Letter] | None = await letters.read(queue, _PAGE, after)
    while page is not None:
        ahead = await _ahead(letters, queue, page)
        begins_again = ahead is None and len(page) == _PAGE
        for letter in page:
            if letter.letter_id not in given:
                given.add(letter.letter_id)
                yield letter
        page = await letters.read(queue, _PAGE, after) if begins_again else ahead


async def _ahead(letters: Letters, queue: str, page: Sequence[Letter]) -> Sequence[Letter] | None:
    """Give the page after this one; None: there is none, or its beginning has gone."""
    if len(page) < _PAGE:
        return None
    try:
        return await letters.read(queue, _PAGE, page[-1].letter_id)
    except LetterGoneError:
        return None


async def chosen(
    letters: Letters, queue: str, which: Which, after: str | None = None
) -> AsyncIterator[Letter]:
    """Give the dead letters that are selected, and read no further than needed."""
    given = 0
    named = None if which.ids is None else set(which.ids)
    async for letter in walk(letters, queue, after):
        if given == which.limit:
            return
        if which.means(letter):
            given += 1
            yield letter
        if named is not None:
            named.discard(letter.letter_id)
            if not named:
                return


@dataclass(slots=True, kw_only=True)
class Frozen:
    """Dead letters that are selected at one moment."""

    chosen: list[str]
    other_error: list[tuple[str, str]]
    """Ids that were named and whose last error is another one, each with that error."""
    missing: list[str]
    """Ids that were named and are not in the queue."""


async def freeze(letters: Letters, queue: str, which: Which) -> Frozen:
    """Write down the ids of what is selected now: dead letters that come later are not."""
    frozen = Frozen(chosen=[], other_error=[], missing=[])
    left = set(which.ids or ())
    async for letter in walk(letters, queue):
        is_full = len(frozen.chosen) == which.limit
        if which.means(letter) and not is_full:
            frozen.chosen.append(letter.letter_id)
        elif which.ids is not None and which.names(letter) and not which.has_error(letter):
            frozen.other_error.append((letter.letter_id, letter.error_type))
        left.discard(letter.letter_id)
        if not left and (which.ids is not None or len(frozen.chosen) == which.limit):
            break
    frozen.missing = sorted(left)
    return frozen
