"""Read through a failed queue: every letter once, whoever adds or removes some meanwhile."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field

from headway.core.letter import Letter
from headway.ports.letters import Letters

_PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """The letters that are meant; without anything said, all."""

    ids: Collection[str] = ()
    error_type: str | None = None
    limit: int | None = None

    def means(self, letter: Letter) -> bool:
        if self.ids and letter.letter_id not in self.ids:
            return False
        return self.error_type is None or letter.error_type == self.error_type

    def words(self) -> str:
        """Say what was chosen by, for the record."""
        said = [f"ids={','.join(sorted(self.ids))}"] if self.ids else []
        said += [f"error_type={self.error_type}"] if self.error_type is not None else []
        said += [f"limit={self.limit}"] if self.limit is not None else []
        return " ".join(said) or "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The letters that were there and meant at one time, by id: what comes later is not in it."""

    ids: Sequence[str]
    missing: Sequence[str] = field(default=())
    """Ids that were asked for and are not there."""


async def walk(letters: Letters, queue: str) -> AsyncIterator[Letter]:
    """Give every letter once, in the order in which they came.

    The next page is asked for before the letters of this one are given out: whoever gets them may
    remove them, and after a letter that has gone nobody can say what comes next. If somebody else
    has removed the last of a page, the walk begins again and passes over what it has given.
    """
    given: set[str] = set()
    went_on = True
    while went_on:
        went_on = False
        page = await letters.read(queue, _PAGE)
        while page:
            is_last = len(page) < _PAGE
            ahead = () if is_last else await letters.read(queue, _PAGE, page[-1].letter_id)
            for letter in page:
                if letter.letter_id not in given:
                    given.add(letter.letter_id)
                    went_on = True
                    yield letter
            if is_last:
                return
            page = ahead


async def chosen(letters: Letters, queue: str, which: Which) -> AsyncIterator[Letter]:
    """Give the letters that are meant, and read no further than needed."""
    most = len(frozenset(which.ids)) or None
    if which.limit is not None:
        most = which.limit if most is None else min(most, which.limit)
    given = 0
    if most == given:
        return
    async for letter in walk(letters, queue):
        if which.means(letter):
            yield letter
            given += 1
            if given == most:
                return


async def freeze(letters: Letters, queue: str, which: Which) -> Frozen:
    """Take down which letters are meant now."""
    ids = [letter.letter_id async for letter in chosen(letters, queue, which)]
    missing = [] if which.limit is not None else sorted(frozenset(which.ids).difference(ids))
    return Frozen(ids=ids, missing=missing)
