"""How rules are matched: the chain, its order, groups, codes, words and pauses."""

import asyncio
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
)
from headway.retrying import (
    DEFAULT_CLASSIFIER,
    TRANSACTION_CLASSIFIER,
    Classifier,
    Rule,
    Verdict,
    rules_for,
)


class CodedError(Exception):
    """Stands for any driver's error that carries a SQLSTATE."""

    def __init__(self, sqlstate: object = None, message: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


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


def caused_by(cause: BaseException, error: Exception | None = None) -> Exception:
    error = error or RuntimeError("wrapped")
    error.__cause__ = cause
    return error


def rule(name: str, verdict: Verdict = Verdict.TRANSIENT, **given: Any) -> Rule:
    return Rule(name=name, verdict=verdict, error_type=name.upper(), **given)


def test_what_no_rule_knows_is_transient() -> None:
    diagnosis = DEFAULT_CLASSIFIER.classify(RuntimeError("strange"))
    assert (diagnosis.verdict, diagnosis.rule) == (Verdict.TRANSIENT, "unmatched")
    assert diagnosis.error_type == "UNKNOWN_ERROR"


def test_what_no_rule_knows_is_permanent_for_a_transaction() -> None:
    assert TRANSACTION_CLASSIFIER.classify(RuntimeError("strange")).verdict is Verdict.PERMANENT


def test_what_no_rule_knows_is_a_setting() -> None:
    classifier = Classifier(rules=(), unmatched=Verdict.NOT_YET, unmatched_type="NEW_TO_US")
    diagnosis = classifier.classify(RuntimeError("strange"))
    assert (diagnosis.verdict, diagnosis.error_type) == (Verdict.NOT_YET, "NEW_TO_US")


def test_what_no_rule_knows_still_shows_its_code() -> None:
    assert DEFAULT_CLASSIFIER.classify(CodedError("P0001")).code == "P0001"
    assert DEFAULT_CLASSIFIER.classify(WrapperError(CodedError("P0001"))).code == "P0001"


def test_the_cause_is_followed() -> None:
    cause = CodedError("40001")
    diagnosis = DEFAULT_CLASSIFIER.classify(caused_by(caused_by(cause)))
    assert diagnosis.rule == "postgresql.conflict"
    assert diagnosis.found is cause


def test_what_an_orm_keeps_is_followed() -> None:
    original = CodedError("40001")
    assert DEFAULT_CLASSIFIER.classify(WrapperError(original)).found is original
    assert (
        DEFAULT_CLASSIFIER.classify(caused_by(WrapperError(caused_by(original)))).found is original
    )


def test_something_else_called_orig_is_not_followed() -> None:
    error = WrapperError("a text")
    assert (
        DEFAULT_CLASSIFIER.classify(caused_by(CodedError("40001"), error)).rule
        == "postgresql.conflict"
    )


def clean_up_badly() -> None:
    try:
        raise CodedError("40001")  # noqa: TRY301
    except CodedError:
        raise RuntimeError("while cleaning up")  # noqa: B904 (this is the point)


def test_an_implicit_context_is_not_followed() -> None:
    with pytest.raises(RuntimeError) as raised:
        clean_up_badly()
    assert isinstance(raised.value.__context__, CodedError)
    assert DEFAULT_CLASSIFIER.classify(raised.value).rule == "unmatched"


def test_a_ring_of_causes_comes_to_an_end() -> None:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert DEFAULT_CLASSIFIER.classify(one).rule == "unmatched"
    itself = WrapperError(None)
    itself.orig = itself
    assert DEFAULT_CLASSIFIER.classify(itself).rule == "unmatched"


def test_the_outer_exception_is_asked_before_its_cause() -> None:
    diagnosis = DEFAULT_CLASSIFIER.classify(caused_by(CodedError("40001"), CodedError("23505")))
    assert diagnosis.rule == "postgresql.unique"


def test_a_code_anywhere_in_the_chain_goes_before_words_anywhere_in_it() -> None:
    words = RuntimeError("change conflicts with another transaction")
    assert (
        DEFAULT_CLASSIFIER.classify(caused_by(CodedError("23505"), words)).rule
        == "postgresql.unique"
    )


def test_words_in_the_cause_count_too() -> None:
    words = RuntimeError("change conflicts with another transaction")
    assert DEFAULT_CLASSIFIER.classify(caused_by(words)).rule == "dsql.conflict_by_text"


def test_the_first_of_two_rules_that_match_is_taken() -> None:
    first = rule("first", types={KeyError})
    second = rule("second", Verdict.PERMANENT, types={LookupError})
    assert Classifier(rules=(first, second)).classify(KeyError()).rule == "first"
    assert Classifier(rules=(second, first)).classify(KeyError()).rule == "second"


def test_own_rules_go_before_the_catalogue() -> None:
    own = rules_for((ValueError,), Verdict.NOT_YET, name="mine")
    classifier = DEFAULT_CLASSIFIER.before([own])
    assert classifier.classify(ValueError()).verdict is Verdict.NOT_YET
    assert classifier.classify(TypeError()).verdict is Verdict.PERMANENT
    assert DEFAULT_CLASSIFIER.classify(ValueError()).verdict is Verdict.PERMANENT


def test_own_rules_keep_the_verdict_for_what_no_rule_knows() -> None:
    base = Classifier(rules=(), unmatched=Verdict.PERMANENT, unmatched_type="ODD")
    diagnosis = base.before([rule("mine", types=frozenset({"builtins.OSError"}))]).classify(
        RuntimeError()
    )
    assert (diagnosis.verdict, diagnosis.error_type) == (Verdict.PERMANENT, "ODD")


def test_a_rule_for_a_class_matches_its_subclasses_and_nothing_else() -> None:
    classifier = Classifier(
        rules=(rules_for((LookupError,), Verdict.TRANSIENT),), unmatched=Verdict.PERMANENT
    )
    assert classifier.classify(KeyError()).rule == "given"
    assert classifier.classify(Exception()).rule == "unmatched"


def test_a_rule_made_of_classes_is_named_after_the_only_one() -> None:
    assert rules_for((KeyError,), Verdict.TRANSIENT).error_type == "KeyError"
    assert rules_for((KeyError, OSError), Verdict.TRANSIENT, name="mine").error_type == "MINE"


def test_a_rule_without_codes_asks_for_none() -> None:
    plain = Classifier(rules=(rule("plain", types=frozenset({"builtins.KeyError"})),))
    assert plain.classify(KeyError()).rule == "plain"


def test_a_rule_takes_the_first_place_where_a_code_stands() -> None:
    both = CodedError("40001")
    both.pgcode = "23505"  # type: ignore[attr-defined]
    assert DEFAULT_CLASSIFIER.classify(both).code == "40001"
    both.sqlstate = None
    assert DEFAULT_CLASSIFIER.classify(both).code == "23505"


def test_a_code_may_be_nought() -> None:
    nought = Classifier(rules=(rule("nought", at=("sqlstate", "code"), codes=frozenset({0})),))
    error = CodedError(0)
    error.code = 7  # type: ignore[attr-defined]
    assert nought.classify(error).rule == "nought"


def test_a_mark_that_is_only_true_is_no_code_to_show() -> None:
    marked = Classifier(rules=(rule("marked", at=("sqlstate",), codes=frozenset({True})),))
    assert marked.classify(CodedError(True)).code is None  # noqa: FBT003


def test_our_own_errors_are_known_whatever_else_they_carry() -> None:
    duplicate = DuplicateEventError("op-1")
    duplicate.sqlstate = "40001"  # type: ignore[attr-defined]
    assert DEFAULT_CLASSIFIER.classify(duplicate).rule == "headway.duplicate_event"


def test_a_rule_for_no_code_matches_only_without_one() -> None:
    no_code = Classifier(rules=(rule("none", at=("sqlstate",), codes=frozenset({None})),))
    assert no_code.classify(CodedError(None)).rule == "none"
    assert no_code.classify(CodedError("40001")).rule == "unmatched"


def test_a_code_is_compared_whole_and_a_class_by_its_beginning() -> None:
    coded = Classifier(
        rules=(
            rule("code", at=("sqlstate",), codes=frozenset({"57P01"})),
            rule("class", at=("sqlstate",), classes=("08",)),
        )
    )
    assert coded.classify(CodedError("57P01")).rule == "code"
    assert coded.classify(CodedError("57P011")).rule == "unmatched"
    assert coded.classify(CodedError("08P01")).rule == "class"
    assert coded.classify(CodedError("10800")).rule == "unmatched"


def test_one_of_several_labels_is_enough() -> None:
    labelled = Classifier(rules=(rule("label", at=("sqlstate",), codes=frozenset({"Retryable"})),))
    assert labelled.classify(CodedError({"Network", "Retryable"})).rule == "label"
    assert labelled.classify(CodedError({"Network"})).rule == "unmatched"
    assert labelled.classify(CodedError(set())).rule == "unmatched"


def test_a_path_leads_through_attributes_and_mappings() -> None:
    deep = Classifier(rules=(rule("deep", at=("sqlstate.answer.code",), codes=frozenset({7})),))
    assert deep.classify(CodedError({"answer": {"code": 7}})).rule == "deep"
    assert deep.classify(CodedError({"answer": None})).rule == "unmatched"
    assert deep.classify(RuntimeError()).rule == "unmatched"


def test_words_are_found_in_any_case() -> None:
    worded = Classifier(rules=(rule("words", text=("is closed", "was closed")),))
    assert worded.classify(RuntimeError("Connection WAS Closed")).rule == "words"
    assert worded.classify(RuntimeError("closed")).rule == "unmatched"


def test_a_finer_code_is_taken_from_the_message() -> None:
    error = CodedError("40001", "schema has been updated by another transaction (oc001)")
    diagnosis = DEFAULT_CLASSIFIER.classify(error)
    assert (diagnosis.code, diagnosis.detail) == ("40001", "OC001")
    assert DEFAULT_CLASSIFIER.classify(CodedError("40001", "could not serialize")).detail is None


@pytest.mark.parametrize("broken", [UnreadableError(), HauntedError(), caused_by(HauntedError())])
def test_an_exception_that_cannot_be_read_is_classified_all_the_same(broken: Exception) -> None:
    assert DEFAULT_CLASSIFIER.classify(broken).rule == "unmatched"


def test_an_unreadable_exception_in_front_does_not_hide_its_cause() -> None:
    for broken in (UnreadableError(), HauntedError()):
        assert DEFAULT_CLASSIFIER.classify(caused_by(CodedError("40001"), broken)).code == "40001"


def test_exceptions_that_are_no_errors_have_no_rule() -> None:
    for stop in (KeyboardInterrupt(), SystemExit(), asyncio.CancelledError()):
        assert DEFAULT_CLASSIFIER.classify(stop).rule == "unmatched"


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
    ],
)
def test_the_gravest_member_speaks_for_a_group(
    members: tuple[Exception, ...], gravest: Exception
) -> None:
    for order in (members, members[::-1]):
        assert DEFAULT_CLASSIFIER.classify(ExceptionGroup("several", order)).found is gravest


def test_a_base_exception_group_is_looked_into_too() -> None:
    group = BaseExceptionGroup("stop", [KeyboardInterrupt(), PERMANENT])
    assert DEFAULT_CLASSIFIER.classify(group).found is PERMANENT


def test_the_diagnosis_says_why_in_one_line() -> None:
    assert DEFAULT_CLASSIFIER.classify(CodedError("40001", "conflict (OC000)")).because == (
        f"{__name__}.CodedError with code 40001 (OC000) is transient by rule postgresql.conflict"
    )
    assert DEFAULT_CLASSIFIER.classify(caused_by(DuplicateEventError("op-1"))).because == (
        "headway.core.errors.DuplicateEventError is permanent by rule headway.duplicate_event"
    )
    assert DEFAULT_CLASSIFIER.classify(RuntimeError()).because == (
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


def test_an_answer_that_asks_for_no_pause_gets_none() -> None:
    for headers in ({}, None, {"content-type": "text/plain"}):
        assert BUSY.classify(AnswerError(headers)).retry_after is None


@pytest.mark.parametrize("digits", [10, 18, 400, 5000])
def test_a_pause_beyond_all_measure_is_still_a_time_that_can_be_added(digits: int) -> None:
    asked = BUSY.classify(AnswerError({"retry-after": "9" * digits})).retry_after
    assert isinstance(asked, timedelta)
    assert timedelta(days=365) < asked
    assert DATE + asked > DATE


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=40))
@example("1" * 20)
def test_no_header_can_break_the_classification(text: str) -> None:
    diagnosis = BUSY.classify(AnswerError({"retry-after": text}))
    assert diagnosis.rule == "busy"
    if isinstance(diagnosis.retry_after, datetime):
        assert diagnosis.retry_after.tzinfo is not None


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
@settings(deadline=None, max_examples=150)
@given(error=st.recursive(errors, _wrap, max_leaves=6))
def test_every_exception_gets_exactly_one_verdict_and_always_the_same(
    classifier: Classifier, error: BaseException
) -> None:
    diagnosis = classifier.classify(error)
    assert diagnosis.verdict in Verdict
    assert classifier.classify(error) == diagnosis
    assert Classifier(rules=classifier.rules, unmatched=classifier.unmatched).classify(
        error
    ) == replace(diagnosis)


@pytest.mark.parametrize(
    "make",
    [caused_by, WrapperError, lambda error: ExceptionGroup("several", [error])],
)
def test_wrapping_a_known_error_does_not_change_its_verdict(
    make: Callable[[Exception], Exception],
) -> None:
    for error in (CodedError("40001"), CodedError("53300"), TypeError("x"), TimeoutError()):
        assert DEFAULT_CLASSIFIER.classify(make(error)) == DEFAULT_CLASSIFIER.classify(error)


class DeclinedError(Exception):
    """Of a user's own."""


@pytest.mark.parametrize(
    "wrong",
    [
        {"types": DeclinedError},
        {"types": "shop.DeclinedError"},
        {"types": frozenset({"DeclinedError"})},
        {"types": frozenset({int})},
        {"types": frozenset()},
        {"verdict": "permanent"},
        {"at": "code"},
        {"text": "declined"},
        {"text": (5,)},
        {"codes": "40001"},
        {"classes": "08"},
        {"detail": "("},
        {"codes": frozenset({4290})},
        {"classes": ("08",)},
        {"at": ("code",)},
    ],
)
def test_a_rule_that_could_never_match_is_refused(wrong: dict[str, Any]) -> None:
    right = {"name": "shop.declined", "verdict": Verdict.PERMANENT, "error_type": "DECLINED"}
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=f"^Invalid {name}=.* of Rule 'shop.declined': "):
        Rule(**{**right, **wrong})


@pytest.mark.parametrize("given", [{}, {"retry_after": "headers"}, {"detail": "OC0"}])
def test_a_rule_without_a_condition_is_refused(given: dict[str, Any]) -> None:
    cure = r"Invalid Rule 'shop': .* every exception\. .* types=\{KeyError\}.*unmatched="
    with pytest.raises(ConfigurationError, match=cure):
        rule("shop", **given)
    everything = Classifier(rules=(rule("all", types={Exception}, **given),))
    assert everything.classify(KeyError()).rule == "all"


@pytest.mark.parametrize("types", [(DeclinedError,), {f"{__name__}.DeclinedError"}])
def test_a_rule_takes_classes_or_their_names(types: Any) -> None:
    rule = Rule(name="shop.declined", verdict=Verdict.PERMANENT, error_type="X", types=types)
    assert Classifier(rules=(rule,)).classify(DeclinedError()).rule == "shop.declined"
