"""Classify an exception: ordered rules say what it means, and which rule said so.

Rules are data. They name exception classes by their qualified names and codes by where they stand
on the exception, so that no driver has to be imported to recognise its errors.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from headway.core.errors import ConfigurationError
from headway.core.failure import Diagnosis, Verdict, words

ANY = frozenset({"builtins.Exception"})
SQLSTATE = ("sqlstate", "pgcode")
"""Where database drivers keep it: asyncpg and psycopg; psycopg2."""
_GRAVEST_FIRST = (
    Verdict.PERMANENT,
    Verdict.UNKNOWN_OUTCOME,
    Verdict.NOT_YET,
    Verdict.TRANSIENT,
)
_LONGEST_CHAIN = 16
_AS_GOOD_AS_NEVER = 10**9  # seconds: thirty years, which still can be added to a date
_UNREAD = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the catalogue: all that is given must hold for the rule to match."""

    name: str
    verdict: Verdict
    error_type: str
    types: Collection[str | type[BaseException]] = ANY
    """Exception classes, or their qualified names; a subclass matches too."""
    at: tuple[str, ...] = ()
    """Attribute paths where the code may stand; the first one present on the exception counts."""
    codes: frozenset[str | int | bool | None] = frozenset()
    """Accepted codes. None accepts an exception that carries no code."""
    classes: tuple[str, ...] = ()
    """Accepted beginnings of a code, such as the SQLSTATE class 08."""
    text: tuple[str, ...] = ()
    """Fragments of the message in lower case, one of which must be there. The last resort."""
    detail: str | None = None
    """A pattern for a finer code inside the message."""
    retry_after: str | None = None
    """Attribute path of the response headers, where the other side may ask for a pause."""

    def __post_init__(self) -> None:
        is_for_any = self.types is ANY  # left as it is; who names Exception means it
        object.__setattr__(self, "types", frozenset(map(self._qualified, self._each("types"))))
        if not self.types:
            raise self._invalid("types", "it matches nothing. Name an exception class")
        given: object = self.verdict
        if not isinstance(given, Verdict):
            raise self._invalid("verdict", "use a Verdict, such as Verdict.PERMANENT")
        for name in ("at", "classes", "text"):
            for each in self._each(name):
                if not isinstance(each, str):
                    raise self._invalid(name, "use a tuple of texts")
        self._each("codes")
        if self.detail is not None:
            try:
                re.compile(self.detail)
            except (re.error, TypeError) as error:
                raise self._invalid("detail", f"no regular expression: {error}") from None
        self._check_conditions(is_for_any=is_for_any)

    def _check_conditions(self, *, is_for_any: bool) -> None:
        for name in ("codes", "classes"):
            if getattr(self, name) and not self.at:
                raise self._invalid(
                    name, 'at= is missing. Say where the code stands, such as at=("code",)'
                )
        if self.at and not (self.codes or self.classes):
            raise self._invalid("at", "codes= is missing. Name the codes, such as codes={4290}")
        if is_for_any and not (self.at or self.text):
            raise ConfigurationError(
                f"Invalid Rule {self.name!r}: without types=, at= or text= it matches every "
                "exception. Name classes, such as types={KeyError}; for what no other rule knows, "
                "use Classifier(rules=..., unmatched=...)."
            )

    def _each(self, name: str) -> Iterable[Any]:
        given = getattr(self, name)
        if not isinstance(given, tuple | list | set | frozenset):
            raise self._invalid(name, "use a tuple or a set, even for one")
        return given

    def _qualified(self, given: object) -> str:
        if isinstance(given, type) and issubclass(given, BaseException):
            return f"{given.__module__}.{given.__qualname__}"
        if not isinstance(given, str) or "." not in given:
            raise self._invalid(
                "types", "use exception classes, or their full names such as 'builtins.KeyError'"
            )
        return given

    def _invalid(self, name: str, cure: str) -> ConfigurationError:
        value = getattr(self, name)
        return ConfigurationError(f"Invalid {name}={value!r:.80} of Rule {self.name!r}: {cure}.")


@dataclass(frozen=True, kw_only=True, repr=False)
class Classifier:
    """Ordered rules, and the verdict for what no rule knows."""

    rules: tuple[Rule, ...]
    unmatched: Verdict = Verdict.TRANSIENT
    unmatched_type: str = "UNKNOWN_ERROR"
    _candidates: dict[tuple[type, bool], tuple[Rule, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __repr__(self) -> str:
        return f"Classifier({len(self.rules)} rules)"

    def classify(self, error: BaseException) -> Diagnosis:
        """Give the verdict on an exception, looking through wrappers, causes and groups."""
        if isinstance(error, BaseExceptionGroup):
            found = [self.classify(member) for member in _members(error)]
            return min(found, key=lambda diagnosis: _GRAVEST_FIRST.index(diagnosis.verdict))
        # Types and codes of the whole chain go before the text of any: words are a guess.
        chain = tuple(_chain(error))
        for by_text in (False, True):
            for link in chain:
                diagnosis = _first_match(self._rules_for(type(link), by_text=by_text), link)
                if diagnosis is not None:
                    return diagnosis
        return Diagnosis(
            verdict=self.unmatched,
            rule="unmatched",
            error_type=self.unmatched_type,
            found=error,
            code=next(
                filter(None, (_text(_first_present(link, SQLSTATE)) for link in chain)), None
            ),
        )

    def before(self, rules: Iterable[Rule]) -> "Classifier":
        """Put rules of one's own in front of these."""
        return Classifier(
            rules=(*rules, *self.rules),
            unmatched=self.unmatched,
            unmatched_type=self.unmatched_type,
        )

    def _rules_for(self, kind: type, *, by_text: bool) -> tuple[Rule, ...]:
        try:
            return self._candidates[kind, by_text]
        except KeyError:
            names = {f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__}
            rules = tuple(
                rule
                for rule in self.rules
                if bool(rule.text) is by_text and not names.isdisjoint(rule.types)
            )
            self._candidates[kind, by_text] = rules
            return rules


def rules_for(
    errors: Sequence[type[BaseException]], verdict: Verdict, *, name: str = "given"
) -> Rule:
    """Make one rule of exception classes that a caller names."""
    return Rule(
        name=name,
        verdict=verdict,
        error_type=errors[0].__name__ if len(errors) == 1 else name.upper(),
        types=frozenset(f"{kind.__module__}.{kind.__qualname__}" for kind in errors),
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, then what it wraps: the ORM's original, the explicit cause.

    An implicit context is not followed: an error raised while handling another one is a new
    error, and says nothing about the old one.
    """
    link: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):  # a chain can be a ring
        if link is None:
            return
        yield link
        wrapped = _reach(link, "orig")
        link = wrapped if isinstance(wrapped, BaseException) else link.__cause__


def _members(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Give what a group holds, groups within it included, however deep they lie."""
    members: list[BaseException] = []
    groups = [group]
    while groups:
        for member in groups.pop().exceptions:
            if isinstance(member, BaseExceptionGroup):
                groups.append(member)
            else:
                members.append(member)
    return members


def _first_match(rules: tuple[Rule, ...], error: BaseException) -> Diagnosis | None:
    codes: dict[tuple[str, ...], Any] = {}  # many rules look in the same places
    for rule in rules:
        code = None
        if rule.at:
            code = codes.get(rule.at, _UNREAD)
            if code is _UNREAD:
                code = codes[rule.at] = _first_present(error, rule.at)
            if None not in rule.codes if code is None else not _accepts(rule, code):
                continue
        diagnosis = _match(rule, error, code)
        if diagnosis is not None:
            return diagnosis
    return None


def _match(rule: Rule, error: BaseException, code: Any) -> Diagnosis | None:
    message = words(error) if rule.text or rule.detail else ""
    if rule.text and not any(fragment in message.lower() for fragment in rule.text):
        return None
    found = re.search(rule.detail, message, re.IGNORECASE) if rule.detail else None
    return Diagnosis(
        verdict=rule.verdict,
        rule=rule.name,
        error_type=rule.error_type,
        found=error,
        code=_text(code),
        detail=found[0].upper() if found else None,
        retry_after=_asked_pause(error, rule.retry_after) if rule.retry_after else None,
    )


def _text(code: Any) -> str | None:
    return str(code) if isinstance(code, str | int) and not isinstance(code, bool) else None


def _accepts(rule: Rule, code: Any) -> bool:
    if isinstance(code, str):
        return code in rule.codes or code.startswith(rule.classes or ("\0",))
    if isinstance(code, int):
        return code in rule.codes
    if isinstance(code, set | frozenset | list | tuple):  # error labels come as a set
        return any(isinstance(label, str) and label in rule.codes for label in code)
    return False


def _first_present(error: BaseException, paths: tuple[str, ...]) -> Any:
    for path in paths:
        value = _reach(error, path)
        if value is not None:
            return value
    return None


def _reach(error: BaseException, path: str) -> Any:
    try:
        if "." not in path:
            return getattr(error, path, None)
        value: Any = error
        for name in path.split("."):
            if isinstance(value, list):
                value = value[int(name)]
            else:
                value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
            if value is None:
                return None
    except Exception:  # noqa: BLE001 (a property that raises holds no code)
        return None
    return value


def _asked_pause(error: BaseException, path: str) -> timedelta | datetime | None:
    headers = _reach(error, path)
    text = headers.get("retry-after") or headers.get("Retry-After") if headers else None
    if not text:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=min(int(text[:18]), _AS_GOOD_AS_NEVER))
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 (slow to load, seldom needed)

    try:
        asked = parsedate_to_datetime(text)
        return asked.astimezone(UTC) if asked.tzinfo else None
    except (ValueError, OverflowError):
        return None  # not a time at all, or none that exists: as if it had not been asked
