from headway import (
    ConfigurationError,
    DocumentNotFoundError,
    DuplicateEventError,
    HeadwayError,
    OutcomeUnknownError,
)
from headway.core import errors
from headway.errors import TransactionRolledBackError


def test_a_message_says_what_which_and_the_cure() -> None:
    assert str(DocumentNotFoundError("messages", ["m1", "m2"])) == "not found in messages: m1, m2"
    assert str(DocumentNotFoundError("no messages yet")) == "no messages yet"
    assert str(DuplicateEventError("e-1")) == "operation 'e-1' was stored before by another call"
    assert str(DuplicateEventError("e-1", "seen before")) == "seen before"
    assert str(OutcomeUnknownError("e-1", 5, "t")) == (
        "operation 'e-1': the connection was lost during COMMIT, and 5 attempts did not find out "
        "whether it was stored; call again later with the same operation id and this error's token"
    )
    assert str(TransactionRolledBackError()) == (
        "the database rolled the transaction back at COMMIT, because an earlier statement had "
        "failed and its error was swallowed; let the error leave the body, or put a savepoint "
        "around the statement"
    )


def test_an_error_carries_what_its_message_names() -> None:
    missing = DocumentNotFoundError("messages", (name for name in ("m1", "m2")))
    assert (missing.collection, missing.missing) == ("messages", ("m1", "m2"))
    assert DuplicateEventError("e-1").operation_id == "e-1"
    unknown = OutcomeUnknownError("e-1", 5, "t")
    assert (unknown.operation_id, unknown.attempts, unknown.token) == ("e-1", 5, "t")


def test_a_refused_setting_is_a_value_error_too() -> None:
    assert issubclass(ConfigurationError, ValueError)


def test_there_is_one_tree_and_it_is_drawn_in_full() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert all(issubclass(kind, HeadwayError) for kind in kinds if issubclass(kind, Exception))
    assert all(
        kind.__name__ in (errors.__doc__ or "") for kind in kinds if issubclass(kind, Exception)
    )
