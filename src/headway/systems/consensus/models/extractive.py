"""Summaries of sentences that people wrote themselves: no model, no network, the same each time.

A sentence is worth more the closer it is to what most of the discussion speaks of. Sentences by
which people decide and object are looked for by their words, and so are questions that nobody
answered.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headway.systems.consensus.centrality import Weights, centralities, similarity, weigh, words
from headway.systems.consensus.cues import Cue, Said, cue_of, has_consensus
from headway.systems.consensus.markdown import escaped
from headway.systems.consensus.models.statements import Statement, statements
from headway.systems.consensus.models.summarizer import Cited, Discussion, Passage, Speech, Summary

_IN_SHORT = 4
_DECISIONS = 5
_OPEN = 4
_PEOPLE = 8
_LONGEST = 300
_TOO_ALIKE = 0.6
_ELSEWHERE = frozenset({Cue.ASKS, Cue.SUPPORTS})
"""What has a section of its own, and says little out of it."""
_ANSWERED = 0.3
"""Similarity from which on a later sentence of somebody else is taken for an answer."""
_FOR_THE_SUBJECT = 0.5
_WORDS_ENOUGH = 7
"""Words that say something. A sentence with fewer is worth less: it may be central by chance."""
_LEANS = re.compile(
    r"(?:he|she|it|they|this|that|these|those|but|and|or|also|because|otherwise|which|not|even|so)\b",
    re.IGNORECASE,
)
"""Begins in a way that leans on the sentence before, which is not there to be read."""
_WHAT_LEANS = 0.7
_YES_OR_NO = re.compile(
    r"(?:yes|no|yep|nope|sure|right|exactly|correct|indeed|done)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A sentence that may be quoted."""

    number: int
    """Its place in the discussion."""
    statement: Statement
    passage: Passage
    cue: Cue | None
    weights: Weights
    score: float

    @property
    def speech(self) -> Speech:
        return self.passage.speech

    @property
    def sender(self) -> str:
        return self.passage.speech.sender

    @property
    def text(self) -> str:
        return self.statement.text


@dataclass(slots=True)
class Notes:
    """Numbers what is cited, in the order in which it is."""

    citations: list[Cited] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def cite(self, candidate: Candidate) -> str:
        """Give the number of a sentence's citation."""
        if candidate.number not in self.numbers:
            said = candidate.statement
            raw = candidate.speech.body[said.start : said.end]
            self.citations.append(Cited(passage=candidate.passage, offset=said.start, text=raw))
            self.numbers[candidate.number] = len(self.citations)
        return f"[{self.numbers[candidate.number]}]"

    def quote(self, candidate: Candidate) -> str:
        """Give a sentence as Markdown, with the number of its citation."""
        return f"{escaped(_short(candidate.text))} {self.cite(candidate)}"


class ExtractiveSummarizer:
    """Works offline, and takes some milliseconds."""

    backend = "extractive"
    model = "centrality-1"

    def summarize(self, discussion: Discussion, prompt: str) -> Summary:  # noqa: ARG002 (for models)
        """Choose sentences; the prompt is for models that can read it."""
        found = list(_candidates(discussion))
        agreed = has_consensus([Said(each.sender, each.cue) for each in found])
        notes = Notes()
        parts = [_headline(found, agreed=agreed)]
        people = list(dict.fromkeys(each.sender for each in discussion.speeches))
        short = _in_short(found)
        parts += _section(
            "In short", [f"{notes.quote(each)} — {escaped(each.sender)}" for each in short]
        )
        decisions = _decisions(found)
        agreeing = _agreeing(found)
        parts += _section(
            "Decisions", [*(_by(each, notes) for each in decisions), *_in_favour(agreeing, notes)]
        )
        objections = _objections(found, agreed=agreed)
        parts += _section("Objections", [_by(each, notes) for each in objections])
        parts += _section("Open questions", [_by(each, notes) for each in _open_questions(found)])
        if len(people) > 1:
            told = _who_said_what(found, [*short, *decisions, *agreeing, *objections])
            parts += _section("Who said what", [_by(each, notes) for each in told])
        return Summary(
            markdown="\n\n".join(parts) + "\n", citations=notes.citations, has_consensus=agreed
        )


def _candidates(discussion: Discussion) -> Iterator[Candidate]:
    said = list(_said(discussion))
    *weighed, subject = weigh([*(statement.text for _, statement in said), discussion.subject])
    scores = centralities(weighed)
    for number, ((passage, statement), weights, score) in enumerate(
        zip(said, weighed, scores, strict=True)
    ):
        worth = score + _FOR_THE_SUBJECT * similarity(weights, subject)
        if _LEANS.match(statement.text):
            worth *= _WHAT_LEANS
        yield Candidate(
            number=number,
            statement=statement,
            passage=passage,
            cue=cue_of(statement.text),
            weights=weights,
            score=worth * min(1.0, len(weights) / _WORDS_ENOUGH),
        )


def _said(discussion: Discussion) -> Iterator[tuple[Passage, Statement]]:
    """Give the sentences that begin in a chosen passage, each once: passages overlap."""
    for speech in discussion.speeches:
        own = [each for each in discussion.passages if each.speech is speech]
        for statement in statements(speech.body):
            holding = (
                each
                for each in own
                if each.offset <= statement.start < each.offset + len(each.text)
            )
            passage = next(holding, None)
            if passage is not None:
                yield passage, statement


def _headline(found: Sequence[Candidate], *, agreed: bool) -> str:
    if agreed:
        decided = any(each.cue is Cue.DECIDES for each in found)
        return f"**{'A decision was reached' if decided else 'There is agreement'}.**"
    if any(each.cue is Cue.OBJECTS for each in found):
        return "**No decision: there are objections.**"
    return "**No decision was found.**"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {line}" for line in lines)] if lines else []


def _by(candidate: Candidate, notes: Notes) -> str:
    return f"**{escaped(candidate.sender)}:** {notes.quote(candidate)}"


def _in_short(found: Sequence[Candidate]) -> list[Candidate]:
    """Choose how it began and what is most central, in the order in which it was said."""
    quotable = [each for each in found if each.statement.is_quotable]
    if not quotable:
        return list(found[:1])
    opening = [each for each in quotable if each.speech is quotable[0].speech]
    speeches = {each.speech.message_doc_id for each in quotable}
    chosen = [max(opening, key=_worth)]
    for each in sorted(quotable, key=_worth, reverse=True):
        if len(chosen) == _IN_SHORT:
            break
        said_enough = len(speeches) >= _IN_SHORT and each.speech in [one.speech for one in chosen]
        if each.cue not in _ELSEWHERE and not said_enough and not _is_alike(each, chosen):
            chosen.append(each)
    return sorted(chosen, key=lambda each: each.number)


def _worth(candidate: Candidate) -> tuple[float, int]:
    """Of two that are as central, the one that was said first."""
    return candidate.score, -candidate.number


def _is_alike(candidate: Candidate, chosen: Iterable[Candidate]) -> bool:
    return any(
        each is candidate or similarity(each.weights, candidate.weights) > _TOO_ALIKE
        for each in chosen
    )


def _decisions(found: Sequence[Candidate]) -> list[Candidate]:
    """Give what was decided, of which the last counts most."""
    chosen: list[Candidate] = []
    for each in reversed([each for each in found if each.cue is Cue.DECIDES]):
        if len(chosen) < _DECISIONS and not _is_alike(each, chosen):
            chosen.append(each)
    return chosen[::-1]


def _agreeing(found: Sequence[Candidate]) -> list[Candidate]:
    """Give by which sentence each person agreed, who did not object again."""
    last: dict[str, Candidate] = {}
    for each in found:
        if each.cue is Cue.SUPPORTS:
            last.setdefault(each.sender, each)
        elif each.cue is Cue.OBJECTS:
            last.pop(each.sender, None)
    return list(last.values())


def _in_favour(agreeing: Sequence[Candidate], notes: Notes) -> list[str]:
    names = [f"{escaped(each.sender)} {notes.cite(each)}" for each in agreeing]
    return [f"In favour: {', '.join(names)}"] if names else []


def _objections(found: Sequence[Candidate], *, agreed: bool) -> list[Candidate]:
    """Give the last objection of each person, where they stand against a decision."""
    if agreed:
        return []
    last = {each.sender: each for each in found if each.cue is Cue.OBJECTS}
    return list(last.values())[-_OPEN:]


def _open_questions(found: Sequence[Candidate]) -> list[Candidate]:
    """Give questions to which nobody else said anything like an answer."""
    questions = [each for each in found if each.cue is Cue.ASKS and each.statement.is_quotable]
    chosen: list[Candidate] = []
    for each in reversed(questions):
        if not _is_answered(each, found) and not _is_alike(each, chosen):
            chosen.append(each)
    return sorted(chosen[:_OPEN], key=lambda each: each.number)


def _is_answered(question: Candidate, found: Sequence[Candidate]) -> bool:
    later = [each for each in found[question.number + 1 :] if each.sender != question.sender]
    reply = next(iter(later), None)
    if reply is not None and _YES_OR_NO.match(reply.text):
        return True
    return any(
        each.cue is not Cue.ASKS
        and (
            similarity(each.weights, question.weights) >= _ANSWERED
            or _first_name(each.sender) in question.weights  # who was asked has spoken since
        )
        for each in later
    )


def _first_name(sender: str) -> str:
    return next(iter(words(sender)), "")


def _who_said_what(found: Sequence[Candidate], told: Sequence[Candidate]) -> list[Candidate]:
    """Give the sentence of each person that is most central, and was not told already."""
    known = {each.number for each in told}
    spoken = Counter(each.sender for each in found)
    order = {sender: place for place, sender in enumerate(spoken)}
    best: list[Candidate] = []
    for sender, _ in sorted(spoken.items(), key=lambda each: (-each[1], order[each[0]]))[:_PEOPLE]:
        own = [each for each in found if each.sender == sender and each.statement.is_quotable]
        fresh = [each for each in own if each.number not in known and each.cue is not Cue.ASKS]
        if fresh or own:
            best.append(max(fresh or own, key=_worth))
    return sorted(best, key=lambda each: order[each.sender])


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return text[:_LONGEST].rsplit(None, 1)[0].rstrip(",;:.") + " …"
