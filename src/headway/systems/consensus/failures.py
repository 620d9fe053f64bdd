"""What goes wrong in the pipeline, and whether it passes.

Beside Headway's own table (connections, timeouts, HTTP 429 and 503 with their Retry-After pass):

| raised                  | verdict   | because                                                  |
|-------------------------|-----------|----------------------------------------------------------|
| NotMailError            | permanent | the file is no archive of mail, or it is broken          |
| TooLargeError           | permanent | a bomb, or a message beyond the limit                    |
| UnreadableMailError     | permanent | a message without anything to read                       |
| FileNotFoundError and its like | permanent | nobody has put a file there that a person named    |
| ArchiveAwayError        | not yet   | a kept archive is not visible (yet) where it should be   |
| InputGivenUpError       | permanent | what a thread waits for was given up: a person decides   |
| ConditionLostError      | not yet   | many slices have a thread in common: others went first   |
| ModelAnswerError        | transient | a model answered something that is no answer: ask again  |
| ModelMissingError       | permanent | a model or its package is not installed here             |
| VectorsMismatchError    | permanent | vectors of another model or size are in the store        |
| OSError, also a full disk | transient | 3 tries; then a letter, and somebody makes room        |
"""

from collections.abc import Sequence

from headway.errors import ConditionLostError
from headway.retrying import DEFAULT_CLASSIFIER, Rule, Verdict
from headway.systems.consensus.mail.errors import (
    MailError,
    NotMailError,
    TooLargeError,
    UnreadableMailError,
)

__all__ = [
    "CLASSIFIER",
    "ArchiveAwayError",
    "ConsensusError",
    "InputGivenUpError",
    "MailError",
    "ModelAnswerError",
    "ModelMissingError",
    "NotMailError",
    "TooLargeError",
    "UnreadableMailError",
    "VectorsMismatchError",
]


class ConsensusError(Exception):
    """What the pipeline itself raises, mail apart."""


class ArchiveAwayError(ConsensusError):
    """An archive that was kept is not where it was kept: its folder may not be there yet."""


class InputGivenUpError(ConsensusError):
    """A thread waits for work that was given up, and that nobody will do unless told to."""

    def __init__(self, collection: str, ids: Sequence[str]) -> None:
        super().__init__(
            f"the thread waits for {collection} that were given up: {', '.join(ids)}. Mend what "
            f"failed (headway documents stuck {collection} shows it), then headway documents "
            f"reset {collection}: the thread follows by itself"
        )


class ModelAnswerError(ConsensusError):
    """A model answered, and that is no answer: of another form, or not as many as were asked."""


class ModelMissingError(ConsensusError):
    """A model cannot be loaded here; the message says what to install."""


class VectorsMismatchError(ConsensusError):
    """The store holds vectors of another model or size; they cannot be compared with these."""


def _named(*kinds: type[Exception]) -> frozenset[str]:
    return frozenset(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


CLASSIFIER = DEFAULT_CLASSIFIER.before(
    [
        Rule(
            name="consensus.mail",
            verdict=Verdict.PERMANENT,
            error_type="MAIL_UNREADABLE",
            types=_named(MailError),
        ),
        Rule(
            name="consensus.archive_away",
            verdict=Verdict.NOT_YET,
            error_type="ARCHIVE_AWAY",
            types=_named(ArchiveAwayError),
        ),
        Rule(
            name="consensus.input_given_up",
            verdict=Verdict.PERMANENT,
            error_type="INPUT_GIVEN_UP",
            types=_named(InputGivenUpError),
        ),
        Rule(
            name="consensus.thread_shared",
            verdict=Verdict.NOT_YET,
            error_type="THREAD_SHARED",
            types=_named(ConditionLostError),
        ),
        Rule(
            name="consensus.model_answer",
            verdict=Verdict.TRANSIENT,
            error_type="MODEL_ANSWER",
            types=_named(ModelAnswerError),
        ),
        Rule(
            name="consensus.not_installed",
            verdict=Verdict.PERMANENT,
            error_type="MODEL_MISSING",
            types=_named(ModelMissingError),
        ),
        Rule(
            name="consensus.vectors_mismatch",
            verdict=Verdict.PERMANENT,
            error_type="VECTORS_MISMATCH",
            types=_named(VectorsMismatchError),
        ),
        Rule(
            name="consensus.no_such_file",
            verdict=Verdict.PERMANENT,
            error_type="FILE_NOT_FOUND",
            types=_named(FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError),
        ),
    ]
)
"""What an exception means in this pipeline; every service has it."""
