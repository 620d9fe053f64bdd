"""How rules are matched: the chain, its order, groups, codes, words and pauses."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway import (
    ConfigurationError,
    DocumentNotFoundError,
    DuplicateEventError,
    OutcomeUnknownError,
    RetryPolicy,
)
from headway.retrying import (
    DEFAULT_CLASSIFIER,
    TRANSACTION_CLASSIFIER,
    Classifier,
    History,
    Rule,
    Stepped,
    Verdict,
    decide,
    rules_for,
)


class CodedError(Exception):
    """Stands for any driver's error that carries a SQLSTATE."""

    def __init__(self, sqlstate: object = None, message: str = "", **more: object) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        vars(self).update(more)


class WrapperError(Exception):
    """Stands for an ORM's error that keeps the driver's one."""

    def __init__(self, orig: object) -> None:
        super().__init__("statement failed")
        self.orig = orig


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class HauntedError(Exception):
    @property
    def sqlstate(self) -> str:
        raise RuntimeError("asked before it was ready")


class RaisingOriginalError(Exception):
    @property
    def orig(self) -> Any:
        raise RuntimeError


class RaisingAttributesError(Exception):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Unhashable:
    def __hash__(self) -> int:
        raise RuntimeError


def caused_by(cause: BaseException, error: Exception | None = None) -> Exception:
    error = error or RuntimeError("wrapped")
    error.__cause__ = cause
    return error


def rule(name: str, verdict: Verdict = Verdict.TRANSIENT, **given: Any) -> Rule:
    return Rule(name=name, verdict=verdict, error_type=name.upper(), **given)


def while_handling(context: Exception) -> Exception:
    error = RuntimeError("while cleaning up")
    error.__context__ = context
    return error


def in_a_ring(number: int) -> Exception:
    errors = [WrapperError(None) for _ in range(number)]
    for one, other in zip(errors, (*errors[1:], errors[0]), strict=True):
        one.__cause__ = other
        one.orig = other
    return errors[0]


def test_what_no_rule_knows_has_the_verdict_of_its_classifier_and_its_code() -> None:
    strange = RuntimeError("strange")
    diagnosis = DEFAULT_CLASSIFIER.classify(strange)
    assert (diagnosis.verdict, diagnosis.rule) == (Verdict.TRANSIENT, "unmatched")
    assert (diagnosis.error_type, diagnosis.found) == ("UNKNOWN_ERROR", strange)
    assert TRANSACTION_CLASSIFIER.classify(strange).verdict is Verdict.PERMANENT
    own = Classifier(rules=(), unmatched=Verdict.NOT_YET, unmatched_type="NEW_TO_US")
    for classifier in (own, own.before([rule("mine", types={OSError})])):
        diagnosis = classifier.classify(strange)
        assert (diagnosis.verdict, diagnosis.error_type) == (Verdict.NOT_YET, "NEW_TO_US")
    for error in (CodedError("P0001"), WrapperError(CodedError("P0001"))):
        assert DEFAULT_CLASSIFIER.classify(error).code == "P0001"


CONFLICT, TAKEN = CodedError("40001"), CodedError("23505")
WORDS = RuntimeError("change conflicts with another transaction")
OURS = DuplicateEventError("op-1")
vars(OURS)["sqlstate"] = "40001"
RULES = {
    "postgresql.conflict": CONFLICT,
    "postgresql.unique": TAKEN,
    "dsql.conflict_by_text": WORDS,
    "headway.duplicate_event": OURS,
}
IN_THE_CHAIN: dict[str, tuple[BaseException, str]] = {
    "a cause": (caused_by(caused_by(CONFLICT)), "postgresql.conflict"),
    "what an ORM keeps": (WrapperError(CONFLICT), "postgresql.conflict"),
    "both": (caused_by(WrapperError(caused_by(CONFLICT))), "postgresql.conflict"),
    "orig that is no error": (caused_by(CONFLICT, WrapperError("text")), "postgresql.conflict"),
    "the outer error first": (caused_by(CONFLICT, TAKEN), "postgresql.unique"),
    "a code before words": (caused_by(TAKEN, RuntimeError(str(WORDS))), "postgresql.unique"),
    "words in a cause": (caused_by(WORDS), "dsql.conflict_by_text"),
    "behind one without words": (caused_by(CONFLICT, UnreadableError()), "postgresql.conflict"),
    "behind one without a code": (caused_by(CONFLICT, HauntedError()), "postgresql.conflict"),
    "our own, whatever it carries": (OURS, "headway.duplicate_event"),
    "a context only": (while_handling(CONFLICT), "unmatched"),
    "a ring": (in_a_ring(2), "unmatched"),
    "a ring of one": (in_a_ring(1), "unmatched"),
    "no words": (UnreadableError(), "unmatched"),
    "no code to be read": (caused_by(HauntedError()), "unmatched"),
    "orig raises": (RaisingOriginalError("odd"), "unmatched"),
    "every attribute raises": (RaisingAttributesError("odd"), "unmatched"),
    "a code that is no code": (CodedError(({"not": "hashable"},)), "unmatched"),
    "a code that cannot be compared": (CodedError(Unhashable()), "unmatched"),
    "Ctrl-C": (KeyboardInterrupt(), "unmatched"),
    "an exit": (SystemExit(), "unmatched"),
    "a cancelled task": (asyncio.CancelledError(), "unmatched"),
}


@pytest.mark.parametrize("name", IN_THE_CHAIN)
def test_the_whole_chain_is_looked_at(name: str) -> None:
    error, expected = IN_THE_CHAIN[name]
    diagnosis = DEFAULT_CLASSIFIER.classify(error)
    assert diagnosis.rule == expected
    assert diagnosis.found is RULES.get(expected, error)


def test_a_cancelled_future_is_not_tried_again() -> None:
    cancelled = concurrent.futures.CancelledError()
    assert DEFAULT_CLASSIFIER.classify(cancelled).verdict is Verdict.PERMANENT


def test_of_two_rules_that_match_the_first_is_taken_and_own_rules_come_first() -> None:
    first = rule("first", types={KeyError})
    second = rule("second", Verdict.PERMANENT, types={LookupError})
    assert Classifier(rules=(first, second)).classify(KeyError()).rule == "first"
    assert Classifier(rules=(second, first)).classify(KeyError()).rule == "second"
    own = DEFAULT_CLASSIFIER.before([rules_for((ValueError,), Verdict.NOT_YET, name="mine")])
    assert own.classify(ValueError()).verdict is Verdict.NOT_YET
    assert own.classify(TypeError()).verdict is Verdict.PERMANENT
    assert DEFAULT_CLASSIFIER.classify(ValueError()).verdict is Verdict.PERMANENT


def test_a_rule_made_of_classes_matches_subclasses_and_is_named_after_the_only_one() -> None:
    lookups = Classifier(rules=(rules_for((LookupError,), Verdict.TRANSIENT),))
    assert lookups.classify(KeyError()).rule == "given"
    assert lookups.classify(Exception()).rule == "unmatched"
    assert rules_for((KeyError,), Verdict.TRANSIENT).error_type == "KeyError"
    assert rules_for((KeyError, OSError), Verdict.TRANSIENT, name="mine").error_type == "MINE"


class DeclinedError(Exception):
    """Of a user's own."""


DEEP = {"at": ("sqlstate.answer.code",), "codes": frozenset({7})}
LABEL = {"at": ("sqlstate",), "codes": frozenset({"Retryable"})}
WORDED = {"text": ("is closed", "was closed")}


@pytest.mark.parametrize(
    ("condition", "error", "matches"),
    [
        ({"types": (DeclinedError,)}, DeclinedError(), True),
        ({"types": {f"{__name__}.DeclinedError"}}, DeclinedError(), True),
        ({"types": frozenset({"builtins.KeyError"})}, KeyError(), True),
        ({"types": frozenset({"builtins.KeyError"})}, LookupError(), False),
        ({"types": {Exception}}, KeyError(), True),
        ({"at": ("sqlstate", "code"), "codes": frozenset({0})}, CodedError(0, code=7), True),
        ({"at": ("sqlstate",), "codes": frozenset({None})}, CodedError(None), True),
        ({"at": ("sqlstate",), "codes": frozenset({None})}, CodedError("40001"), False),
        ({"at": ("sqlstate",), "codes": frozenset({"57P01"})}, CodedError("57P01"), True),
        ({"at": ("sqlstate",), "codes": frozenset({"57P01"})}, CodedError("57P011"), False),
        ({"at": ("sqlstate",), "classes": ("08",)}, CodedError("08P01"), True),
        ({"at": ("sqlstate",), "classes": ("08",)}, CodedError("10800"), False),
        (LABEL, CodedError({"Network", "Retryable"}), True),
        (LABEL, CodedError({"Network"}), False),
        (LABEL, CodedError(set()), False),
        (DEEP, CodedError({"answer": {"code": 7}}), True),
        (DEEP, CodedError({"answer": None}), False),
        (DEEP, RuntimeError(), False),
        (WORDED, RuntimeError("Connection WAS Closed"), True),
        (WORDED, RuntimeError("closed"), False),
    ],
)
def test_all_conditions_of_a_rule_must_hold(
    condition: dict[str, Any], error: Exception, *, matches: bool
) -> None:
    found = Classifier(rules=(rule("own", **condition),)).classify(error).rule
    assert found == ("own" if matches else "unmatched")


def test_the_code_is_read_at_the_first_place_where_one_stands() -> None:
    both = CodedError("40001", pgcode="23505")
    assert DEFAULT_CLASSIFIER.classify(both).code == "40001"
    both.sqlstate = None
    assert DEFAULT_CLASSIFIER.classify(both).code == "23505"
    marked = Classifier(rules=(rule("marked", at=("sqlstate",), codes=frozenset({True})),))
    assert marked.classify(CodedError(sqlstate=True)).code is None
    updated = CodedError("40001", "schema has been updated by another transaction (oc001)")
    diagnosis = DEFAULT_CLASSIFIER.classify(updated)
    assert (diagnosis.code, diagnosis.detail) == ("40001", "OC001")
    assert DEFAULT_CLASSIFIER.classify(CodedError("40001", "could not serialize")).detail is None


NOT_YET = DocumentNotFoundError("messages", ["m1"])
TRANSIENT = ConnectionResetError()
UNKNOWN = OutcomeUnknownError("op", 5, "t")
PERMANENT = TypeError()


@pytest.mark.parametrize(
    ("members", "gravest"),
    [
        ((TRANSIENT,), TRANSIENT),
        ((TRANSIENT, NOT_YET), NOT_YET),
        ((NOT_YET, UNKNOWN, TRANSIENT), UNKNOWN),
        ((TRANSIENT, UNKNOWN, PERMANENT, NOT_YET), PERMANENT),
        ((TRANSIENT, ExceptionGroup("inner", [NOT_YET, PERMANENT])), PERMANENT),
        ((TRANSIENT, caused_by(PERMANENT)), PERMANENT),
        ((KeyboardInterrupt(), PERMANENT), PERMANENT),
    ],
)
def test_the_gravest_member_speaks_for_a_group(
    members: tuple[BaseException, ...], gravest: Exception
) -> None:
    for order in (members, members[::-1]):
        assert DEFAULT_CLASSIFIER.classify(BaseExceptionGroup("several", order)).found is gravest


def test_groups_may_be_nested_deeply() -> None:
    error: Exception = TypeError()
    for _ in range(3_000):
        error = ExceptionGroup("deeper", [error])
    assert DEFAULT_CLASSIFIER.classify(error).verdict is Verdict.PERMANENT


def test_the_diagnosis_names_class_code_verdict_and_rule_in_one_line() -> None:
    assert DEFAULT_CLASSIFIER.classify(CodedError("40001", "conflict (OC000)")).because == (
        f"{__name__}.CodedError with code 40001 (OC000) is transient by rule postgresql.conflict"
    )
    assert DEFAULT_CLASSIFIER.classify(caused_by(RuntimeError())).because == (
        "builtins.RuntimeError is transient by rule unmatched"
    )


class AnswerError(Exception):
    def __init__(self, headers: object) -> None:
        super().__init__()
        self.headers = headers


BUSY = Classifier(rules=(rule("busy", types={AnswerError}, retry_after="headers"),))
DATE = datetime(2015, 10, 21, 7, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "pause"),
    [
        ("120", timedelta(minutes=2)),
        (" 5 ", timedelta(seconds=5)),
        ("0", timedelta()),
        ("Wed, 21 Oct 2015 07:28:00 GMT", DATE),
        ("Wed, 21 Oct 2015 09:28:00 +0200", DATE),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("\u00b2", None),
        ("Wed, 21 Oct 2015 07:28:00", None),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", None),
    ],
)
def test_the_pause_that_the_other_side_asks_for_is_read(
    text: str, pause: timedelta | datetime | None
) -> None:
    for name in ("retry-after", "Retry-After"):
        assert BUSY.classify(AnswerError({name: text})).retry_after == pause
    for headers in ({}, None, {"content-type": text}):
        assert BUSY.classify(AnswerError(headers)).retry_after is None


@pytest.mark.parametrize("digits", [10, 18, 400, 5000])
def test_a_pause_beyond_all_measure_is_still_a_time_that_can_be_added(digits: int) -> None:
    asked = BUSY.classify(AnswerError({"retry-after": "9" * digits})).retry_after
    assert isinstance(asked, timedelta)
    assert timedelta(days=365) < asked
    assert DATE + asked > DATE


@settings(deadline=None)
@given(st.text(max_size=40))
@example("1" * 20)
@example("9" * 20)
@example("Fri, 31 Dec 9999 23:59:59 -0100")
def test_no_header_can_break_the_classification_or_the_decision(text: str) -> None:
    diagnosis = BUSY.classify(AnswerError({"retry-after": text}))
    assert diagnosis.rule == "busy"
    if isinstance(diagnosis.retry_after, datetime):
        assert diagnosis.retry_after.tzinfo is not None
    second = timedelta(seconds=1)
    policy = RetryPolicy(max_attempts=3, backoff=Stepped(steps=(second,)), ttl=second * 60)
    decide(policy, History(attempts=1, first_seen=DATE), diagnosis, now=DATE, draw=0.5)


errors: st.SearchStrategy[BaseException] = st.one_of(
    st.sampled_from(("40001", "23505", "53300", "57P01", "08006", None, 7, True)).map(CodedError),
    st.sampled_from((TypeError, ConnectionResetError, RuntimeError, KeyboardInterrupt)).map(
        lambda kind: kind("x")
    ),
    st.text(max_size=20).map(RuntimeError),
)


def _wrap(inner: st.SearchStrategy[BaseException]) -> st.SearchStrategy[BaseException]:
    return st.one_of(
        inner.map(WrapperError),
        inner.map(caused_by),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda members: BaseExceptionGroup("group", members)
        ),
    )


@pytest.mark.parametrize("classifier", [DEFAULT_CLASSIFIER, TRANSACTION_CLASSIFIER])
@settings(deadline=None)
@given(error=st.recursive(errors, _wrap, max_leaves=6))
def test_every_exception_gets_exactly_one_verdict_and_always_the_same(
    classifier: Classifier, error: BaseException
) -> None:
    diagnosis = classifier.classify(error)
    assert diagnosis.verdict in Verdict
    assert classifier.classify(error) == diagnosis
    again = Classifier(rules=classifier.rules, unmatched=classifier.unmatched)
    assert again.classify(error) == replace(diagnosis)


@pytest.mark.parametrize(
    "make",
    [caused_by, WrapperError, lambda error: ExceptionGroup("several", [error])],
)
def test_wrapping_a_known_error_does_not_change_its_verdict(
    make: Callable[[Exception], Exception],
) -> None:
    for error in (CodedError("40001"), CodedError("53300"), TypeError("x"), TimeoutError()):
        assert DEFAULT_CLASSIFIER.classify(make(error)) == DEFAULT_CLASSIFIER.classify(error)


WRONG: dict[str, list[Any]] = {
    "types": [
        *(DeclinedError, "shop.DeclinedError", {"DeclinedError"}, frozenset({int}), frozenset()),
    ],
    "verdict": ["permanent"],
    "at": ["code", ("code",)],
    "text": ["declined", (5,)],
    "codes": ["40001", frozenset({4290})],
    "classes": ["08", ("08",)],
    "detail": ["("],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_could_never_match_is_refused(name: str) -> None:
    right = {"name": "shop.declined", "verdict": Verdict.PERMANENT, "error_type": "DECLINED"}
    for wrong in WRONG[name]:
        with pytest.raises(ConfigurationError, match=f"^Invalid {name}=.* Rule 'shop.declined': "):
            Rule(**{**right, name: wrong})


@pytest.mark.parametrize("given", [{}, {"retry_after": "headers"}, {"detail": "OC0"}])
def test_a_rule_without_a_condition_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"Invalid Rule 'shop': .*types=.*unmatched="):
        rule("shop", **given)
