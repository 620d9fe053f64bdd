"""The exceptions of Headway.

HeadwayError
├── AlreadyStoredError        an earlier call with the same token stored the operation
├── BrokerFullError           the broker takes no messages for now, and none was sent
├── ConditionLostError        a document is not any more what an update expected
├── ConfigurationError        a setting was refused before anything started
├── CrashLoopError            a worker died again and again over one event
├── DocumentNotFoundError     a document is expected and not visible yet: try again later
├── DocumentReplacedError     a document does not say any more whose attempt has it
├── DuplicateEventError       the operation was done before, by somebody else
├── KeyTakenError             other work with the same key has failed since this was read
├── LetterGoneError           the letter after which to go on is not in its queue any more
├── HandlerTimeoutError       a handler took longer than its subscription allows
├── MalformedEventError       these bytes are no event
├── NotAwaitedError           a handler called a read of its work and never awaited it
├── PermanentError            raised by a handler: no number of tries will help
├── PublishError              publishing several messages failed
│   ├── NotPublishedError     it ended before everything was known to be stored
│   └── UnsendableError       no number of tries will get this message into the bus
├── OutcomeUnknownError       a commit was sent and nobody could be asked whether it took effect
├── RefusedEventError         no live version of a service can read this event
├── StorageLostError          the file that a process works on is not where it was: restart
├── TooManyHopsError          handlers publish one after another without an end
├── TransactionEndedError     the body ended the transaction itself
├── TransactionRolledBackError   the database answered COMMIT with a rollback
├── UnreadableDocumentError   what lies where a document should be is none
├── UnroutableEventError      nobody here handles events of this type
├── UnstorableError           no number of tries will get this value into a document
└── WorkOverError             a handler's work was written to after the handler had returned
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Self


class HeadwayError(Exception):
    """Anything that Headway itself raises."""


class AlreadyStoredError(HeadwayError):
    """The operation is stored, by an earlier call with the same token: its sender asked again."""

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(
            f"operation {operation_id!r} was stored by an earlier call with the same token"
        )


class PublishError(HeadwayError):
    """Publishing several messages failed."""

    stored: frozenset[int] = frozenset()
    """Positions of the messages that are known to be stored all the same."""


class BrokerFullError(HeadwayError, ConnectionError):
    """A broker has no memory or disk space left; of what was to be published nothing was sent."""


class ConditionLostError(HeadwayError):
    """A conditional update came too late: another writer changed the document first."""

    def __init__(
        self, collection: str, document: str, field: str, expected: object, found: object
    ) -> None:
        self.collection = collection
        self.document = document
        self.field = field
        self.found = found
        super().__init__(
            f"{collection}/{document}: {field} should be {expected!r} and is {found!r}"
        )


class ConfigurationError(HeadwayError, ValueError):
    """A setting that cannot be used; the message names it, its value and what would be accepted."""


class StorageLostError(ConfigurationError):
    """The storage was removed or replaced under a running process, which has to end.

    No number of tries helps: all that the process knows is about storage that is gone.
    """


class CrashLoopError(HeadwayError):
    """An event ends its worker again and again: it is set aside, and a person has to look."""

    def __init__(self, returns: int, begins: int, handler: str = "its handler") -> None:
        super().__init__(
            f"its worker ended {returns} times while it held this event, {begins} of them while "
            f"{handler} ran it alone. Either the process died: look for os._exit, a crash of a C "
            "extension or too little memory. Or it was stopped while the handler blocked the event "
            "loop for longer than the grace: then its log says 'still blocks the event loop' and "
            "where"
        )


class DocumentNotFoundError(HeadwayError):
    """Documents that an event speaks of are not visible yet.

    Raise it when a document *should* be there: it is retried on the schedule for "not yet".
    """

    def __init__(self, collection: str, missing: Iterable[str] = ()) -> None:
        self.collection = collection
        self.missing = tuple(missing)
        names = ", ".join(self.missing)
        message = f"not found in {collection}: {names}" if names else collection
        super().__init__(message)

    near = ""
    """A collection of nearly the same name, where there is no document in this one at all."""

    def __str__(self) -> str:
        said = super().__str__()
        if not self.near:
            return said
        return (
            f"{said}. There is no document in {self.collection} at all: did you mean {self.near}?"
        )


class DocumentReplacedError(HeadwayError):
    """A document lost what an attempt had written into it, and no other attempt has it."""

    def __init__(self, collection: str, document: str) -> None:
        super().__init__(
            f"{collection}/{document} does not say any more that this attempt has it, so nothing "
            "was committed: it was replaced whole, reset or given up meanwhile. If the handler "
            "writes it with a client of its own, change single fields there and leave the others, "
            "or use work.documents"
        )


class DuplicateEventError(HeadwayError):
    """The operation was stored before, by another call: nothing was changed this time."""

    def __init__(self, operation_id: str, message: str | None = None) -> None:
        self.operation_id = operation_id
        super().__init__(message or f"operation {operation_id!r} was stored before by another call")


class KeyTakenError(HeadwayError):
    """Other work with the same idempotency key failed while this was being done.

    It was not done, so it does not make this a duplicate; but the key of its record is taken.
    """

    def __init__(self, key: str, operation: str) -> None:
        super().__init__(f"{key!r} is taken by operation {operation!r}, which failed")


class LetterGoneError(HeadwayError, LookupError):
    """The position after this dead letter is unknown: it was requeued or purged meanwhile."""

    def __init__(self, queue: str, letter_id: str) -> None:
        self.queue = queue
        self.letter_id = letter_id
        super().__init__(f"no letter {letter_id!r} is in {queue} (any more): begin again")


class HandlerTimeoutError(HeadwayError, TimeoutError):
    """An attempt was stopped because it took too long. It says nothing about any dependency."""

    def __init__(self, event_type: str, timeout: timedelta) -> None:
        super().__init__(
            f"the handler of {event_type} took longer than its timeout of "
            f"{timeout.total_seconds():g} s and was stopped"
        )


class MalformedEventError(HeadwayError, ValueError):
    """Bytes that are no event; the message says why."""


class NotAwaitedError(HeadwayError):
    """A handler called a read of its work and never awaited it, so the read never ran."""

    def __init__(self, handler: str, reads: Iterable[str]) -> None:
        self.reads = tuple(reads)
        super().__init__(
            f"{handler} never awaited {', '.join(self.reads)}: nothing was committed. Write await "
            "before it."
        )


class PermanentError(HeadwayError):
    """Raise it, or a subclass, where no number of tries will help: the event ends at once.

    It is an answer, as of a card that is declined: it is never taken for a bad deploy, and a sweep
    does not try the document again.
    """


class NotPublishedError(PublishError, ConnectionError):
    """The bus went away, or refused, before everything was known to be stored.

    Of several that were published together, `stored` names those that are, by their positions.
    Of the others nothing is known. Publish again under the same event ids: done-records recognise
    what was stored.
    """


class OutcomeUnknownError(HeadwayError):
    """A COMMIT was sent, the connection was lost, and the database could not be asked again.

    The operation may or may not have taken effect. Calling again with the same operation id and
    token is safe: it finds the row if it is there.
    """

    def __init__(self, operation_id: str, attempts: int, token: str) -> None:
        self.operation_id = operation_id
        self.attempts = attempts
        self.token = token
        """Give it to `run_transaction(..., token=...)` to find out later."""
        super().__init__(
            f"operation {operation_id!r}: the connection was lost during COMMIT, and {attempts} "
            "attempts did not find out whether it was stored; call again later with the same "
            "operation id and this error's token"
        )


class RefusedEventError(HeadwayError, ValueError):
    """No version of a service that is alive can read an event."""

    def __init__(
        self, service: str, refusals: Mapping[str, str], awaited: Iterable[str], grace: timedelta
    ) -> None:
        told = "; ".join(f"version {each!r} refused it: {why}" for each, why in refusals.items())
        for version in awaited:
            told += f"; version {version!r} was not alive within {grace.total_seconds():g} s"
        super().__init__(
            f"no live version of {service} can read this event ({', '.join(map(repr, refusals))} "
            f"refused it): {told}. Deploy a version that can, and requeue this dead letter"
        )


class TooManyHopsError(HeadwayError):
    """A handler published at the end of a chain that is too long: it probably has no end."""

    def __init__(self, handler: str, event_types: str, hops: int) -> None:
        self.hops = hops
        super().__init__(
            f"{handler} publishes {event_types}, and {hops} handlers published one after another "
            "until its event: nothing was committed. If this goes round in circles, end it. If "
            "such long chains are meant, set Service(max_hops=) higher, or to None. A requeue "
            "counts from 0 again"
        )


class TransactionEndedError(HeadwayError):
    """The body committed or rolled back by itself, so run_transaction had nothing to commit."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(
            message
            or "the body ended the transaction by itself (COMMIT or ROLLBACK): what it committed "
            "is stored, what it did afterwards may not be; leave both to run_transaction"
        )


class TransactionRolledBackError(HeadwayError):
    """COMMIT was answered by ROLLBACK: a statement had failed and the body swallowed its error."""

    def __init__(self) -> None:
        super().__init__(
            "the database rolled the transaction back at COMMIT, because an earlier statement had "
            "failed and its error was swallowed; let the error leave the body, or put a savepoint "
            "around the statement"
        )


class UnreadableDocumentError(HeadwayError, ValueError):
    """Another program has put something where a document should be, and it is no JSON object."""

    def __init__(self, collection: str, document_ids: Iterable[str]) -> None:
        self.collection = collection
        self.document_ids = tuple(document_ids)
        super().__init__(
            f"nobody can read what is in {collection} under {', '.join(self.document_ids)}: write "
            "it as a JSON object by hand, or purge it by its id (headway documents purge)"
        )


class UnroutableEventError(HeadwayError):
    """An event of a type that no handler of the service takes from this queue."""

    def __init__(self, service: str, event_type: str, queue: str) -> None:
        self.event_type = event_type
        super().__init__(
            f"{service} has no handler for {event_type!r} in {queue}: deploy one that has and "
            "requeue this letter, or find out who sends it here"
        )


class UnsendableError(PublishError, ValueError):
    """A message that the bus never takes: it is too large, or holds what cannot be written.

    Of several that were published together, `stored` names those that are stored all the same, by
    their positions. Nothing is known of the others.
    """

    def __init__(self, why: str, *, field: str = "") -> None:
        super().__init__(why)
        self.field = field
        """The field of the data that is to blame, where there is one: `items[3].price`."""

    @classmethod
    def of_field(cls, event_type: str, field: str, what: str) -> Self:
        named = f"the field {field!r}" if field else "its data"
        return cls(f"{event_type} cannot be published: {named} holds {what}", field=field)


class UnstorableError(HeadwayError, ValueError):
    """A document with a value that its store would drop, change or refuse."""

    def __init__(self, whose: str, field: str, what: str) -> None:
        self.field = field
        named = f"the field {field!r}" if field else "it"
        super().__init__(f"{whose} cannot be stored: {named} holds {what}")


class WorkOverError(HeadwayError):
    """Something written after the handler had returned, which would be lost."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the work {key!r} is over: its handler has returned. Write and publish before that, "
            "and await every task that the handler starts"
        )
