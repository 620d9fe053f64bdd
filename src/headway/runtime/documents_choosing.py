"""Which documents a person means, and reading them page by page: never all at once."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headway.core.decision import GIVEN_UP_AT, Decision
from headway.core.document import LAST_ERROR, LAST_FAILED_AT, moment
from headway.core.errors import ConfigurationError
from headway.core.ids import checked_ids
from headway.core.lifecycle import Lifecycle, State
from headway.core.showing import shown
from headway.ports.desk import DocumentDesk
from headway.ports.documents import Documents

PAGE = 500
_IDS_SAID = 10
_WORDS = {"processing": State.PENDING, "completed": State.PROCESSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The documents that are meant: those to which everything applies that is said.

    Args:
        ids: Exactly these. None: any; an empty list is refused.
        states: Only those in one of these; without any, those that a decision is usually about.
        error_type: Only those whose last error was of this type.
        limit: At most so many, in the order of their ids.
        everything: All of them; said, because nothing said means nothing.
        stuck: Those with these ids even if they were not given up, unless a worker may have them.
    """

    ids: Sequence[str] | None = None
    states: Sequence[State] = ()
    error_type: str | None = None
    limit: int | None = None
    everything: bool = False
    stuck: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", checked_ids("ids", self.ids))

    def means(self, document: Mapping[str, Any], lifecycle: Lifecycle) -> bool:
        """Say whether a document that was read is one of them."""
        if self.error_type is not None and error_type(document) != self.error_type:
            return False
        return not self.states or lifecycle.state(document) in self.states

    def words(self) -> str:
        """Say by what they were chosen, for the record."""
        ids = self.ids or ()
        few = ",".join(ids[:_IDS_SAID]) + ",..." * (len(ids) > _IDS_SAID)
        said = [f"ids={few}"] if ids else []
        said += [f"status={','.join(self.states)}"] if self.states else []
        said += [f"error={self.error_type}"] if self.error_type is not None else []
        said += [f"limit={self.limit}"] if self.limit is not None else []
        said += ["stuck"] if self.stuck else []
        return " ".join(["all"] * self.everything + said)


def checked(choice: Choice, decision: Decision) -> Choice:
    """Refuse a choice by which nothing, or two different things, are said."""
    if choice.ids and choice.everything:
        raise ConfigurationError("ids and --all are not accepted together: say one of them")
    if choice.stuck and not choice.ids:
        raise ConfigurationError(
            "--stuck is accepted with ids only: sweeps would try these documents again, so name "
            "each one"
        )
    if choice.ids or choice.everything or choice.states:
        return choice
    if choice.error_type is not None or choice.limit is not None:
        return choice
    has_status = decision is Decision.RESET
    raise ConfigurationError(
        "it is not said which documents are meant: name their ids, or say --all, --error TYPE, "
        f"{'--status STATUS ' * has_status}or --limit NUMBER; --dry-run shows what would be changed"
    )


def usual_states(decision: Decision) -> Sequence[State]:
    """Give the states of the documents that a decision is about, if ids do not say which."""
    match decision:
        case Decision.RESET | Decision.PURGE | Decision.ARCHIVE:
            return (State.GIVEN_UP,)
        case Decision.RETRY:
            return (State.FAILED,)
        case Decision.RESTORE:  # one that was interrupted has left them pending
            return (State.GIVEN_UP, State.FAILED, State.PENDING)


def read_states(words: Sequence[str], lifecycle: Lifecycle) -> Sequence[State]:
    """Read what people type for a status: the words that documents hold, or those of states."""
    known = {**{state.value: state for state in State}, **_WORDS}
    known[lifecycle.processed] = State.PROCESSED
    for word in words:
        if word not in known:
            raise ConfigurationError(
                f"--status {shown(word)!r} is not accepted: use one of {', '.join(known)}"
            )
    return tuple(dict.fromkeys(known[word] for word in words))


def error_type(document: Mapping[str, Any]) -> str:
    """Give the type of a document's last error; nothing, where there is none."""
    error = document.get(LAST_ERROR)
    found = error.get("type") if isinstance(error, Mapping) else None
    return found if isinstance(found, str) else ""


async def pages(
    documents: Documents,
    desk: DocumentDesk,
    lifecycle: Lifecycle,
    choice: Choice,
    began: datetime | None,
) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
    """Give the documents that are meant, page by page.

    What failed or was given up since the change began is not meant, unless it is named.
    """
    if choice.ids:
        ids = list(choice.ids)
        for start in range(0, len(ids), PAGE):
            found = await documents.fetch(lifecycle.collection, ids[start : start + PAGE])
            yield [each for each in found.values() if choice.means(each, lifecycle)]
        return
    async for page in desk.browse(lifecycle, choice.states, page=PAGE):
        yield [
            each
            for each in page
            if choice.means(each, lifecycle) and not _came_since(each, lifecycle, began)
        ]


def _came_since(document: Mapping[str, Any], lifecycle: Lifecycle, began: datetime | None) -> bool:
    if began is None:
        return False
    given_up = lifecycle.state(document) is State.GIVEN_UP
    at = moment(document.get(GIVEN_UP_AT if given_up else LAST_FAILED_AT))
    return at is not None and at > began
