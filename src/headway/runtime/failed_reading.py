"""Read through a failed queue: every letter once, whoever adds or removes some meanwhile."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from headway.core.errors import LetterGoneError
from headway.core.letter import Letter
from headway.ports.letters import Letters

_PAGE = 100
_IDS_SAID = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """The letters that are meant; without anything said, all."""

    ids: Collection[str] = frozenset()
    error_type: str | None = None
    limit: int | None = None

    def means(self, letter: Letter) -> bool:
        if self.ids and not any(letter.letter_id.startswith(each) for each in self.ids):
            return False
        return self.error_type is None or letter.error_type == self.error_type

    def words(self) -> str:
        """Say by what they were chosen, for the record."""
        few = ",".join(sorted(self.ids)[:_IDS_SAID]) + ",..." * (len(self.ids) > _IDS_SAID)
        said = [f"ids={few}"] if self.ids else []
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
    """Give the letters that are meant, and read no further than needed."""
    bounds = [most for most in (which.limit, len(which.ids) or None) if most is not None]
    given, most = 0, min(bounds, default=None)
    async for letter in walk(letters, queue, after):
        if given == most:
            return
        if which.means(letter):
            given += 1
            yield letter


async def freeze(letters: Letters, queue: str, which: Which) -> Sequence[str]:
    """Take down the ids of the letters that are meant now: what comes later is none of them."""
    return [letter.letter_id async for letter in chosen(letters, queue, which)]
