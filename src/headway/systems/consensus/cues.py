"""Words by which people in a discussion agree, object, decide or ask."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Cue(StrEnum):
    """What a sentence does in a discussion, beside what it says."""

    DECIDES = "decides"
    SUPPORTS = "supports"
    OBJECTS = "objects"
    ASKS = "asks"


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in patterns), re.IGNORECASE)


_WITHDRAWS = _any_of(
    r"\bno (?:more |further )?objections?\b",
    r"\bwithdraw(?:n|ing)? my (?:objection|veto|-1)",
    r"\bobjection (?:is )?withdrawn\b",
    r"\bdon'?t object\b",
    r"\bdo not object\b",
)
_FOR = re.compile(r"(?:^|\s)\+1(?=$|[\s.,:;!])")
_AGAINST = re.compile(r"(?:^|\s)-1(?=$|[\s.,:;!])")
_OBJECTS = _any_of(
    _AGAINST.pattern,
    r"\bI (?:\w+ )?(?:object|disagree|oppose)\b",
    r"\b(?:have|raise|with) an? (?:\w+ )?objection\b",
    r"\b(?:I'm|I am) (?:\w+ )?(?:against|opposed)\b",
    r"\bveto\b",
    r"\b(?:not|isn't|aren't) (?:\w+ )?(?:convinced|in favou?r|acceptable|agreed)\b",
    r"\bno consensus\b",
    r"\b(?:can't|cannot|can not|don't|do not) (?:\w+ )?(?:agree|support|accept)\b",
)
_UNDECIDED = _any_of(
    r"\b(?:not|never|n't|yet|before|until|if|unless|whether|once|once it is) "
    r"(?:\w+ ){0,2}(?:agreed?|decided?|accepted|approved|settled)\b",
    r"\bundecided\b",
    r"^as (?:\w+ ){0,4}(?:agreed|decided)\b",  # elsewhere, before
    r"\b(?:if|unless|suppose|whether) (?:we|you|they|everybody|everyone|nobody|no one)\b",
)
_DECIDES = _any_of(
    r"\b(?:we|everybody|everyone|all) (?:have |has |all |are |is |\w+ly )*(?:agreed?|decided)\b",
    r"(?:^|[.;:,] )(?:agreed|decided|accepted|approved|resolved|settled)"
    r"(?: [:,-]|[:,.!]| (?:that|to|on|then)\b)",
    r"\b(?:it|this|that|all|proposals?|motions?|plans?|changes?|rfc|patch) "
    r"(?:is|was|are|were|has been|have been) (?:now |hereby |unanimously )?"
    r"(?:agreed|decided|accepted|approved|settled)\b",
    r"^(?:so|ok|okay|good|fine|then|right)\b,? (?:then )?we (?:will )?"
    r"(?:go|move|use|take|keep|drop|ship|stay|release|publish)\b",
    r"\bdecided (?:to|that|on|against|in favou?r)\b",
    r"\b(?:decision|consensus|conclusion)(?: is\b| was\b| then\b|:)",
    r"\blet'?s (?:go (?:with|for|ahead)|do (?:it|that|this)|take|use|adopt|settle|ship|merge|keep|"
    r"move|stick)\b",
    r"\b(?:we'll|we will|we are going to|I'll|I will) (?:then )?"
    r"(?:go (?:with|for|ahead)|adopt|settle on|stick with|merge)\b",
    r"\bgoing (?:ahead )?with\b",
    r"\bsettled on\b",
    r"\bthat settles it\b",
    r"\b(?:motion|vote|proposal) (?:is |has |was )?(?:passed|passes|carried|accepted|approved)\b",
)
_SUPPORTS = _any_of(
    _FOR.pattern,
    r"\blgtm\b",
    r"\b(?:sounds|looks) (?:good|great|fine|right|reasonable)\b",
    r"\bI (?:\w+ )?agree\b",
    r"^agreed\b",
    r"\b(?:fine|ok|okay) (?:with|by|for) me\b",
    r"\bworks for me\b",
    r"\bin favou?r\b",
    r"\bI (?:\w+ )?support\b",
    r"\bI'?(?:m| am) (?:\w+ )?(?:happy|fine|ok|okay) with\b",
    r"\bmakes sense\b",
    r"\b(?:second|seconded) (?:that|this)\b",
)


# In every sentence with a cue there is one of these: the others are not looked at closely. To look
# for a plain text takes a hundredth of the time that such a pattern takes.
_WITHDRAWING = ("object", "withdraw")
_OBJECTING = (
    "-1", "object", "agree", "oppose", "against", "veto", "convinced", "favo", "accept",
    "consensus", "support",
)  # fmt: skip
_DECIDING = (
    "agree", "deci", "accept", "approv", "resolved", "settle", "we ", "consensus", "conclusion",
    "let's", "lets", "we'll", "i'll", "i will", "going", "motion", "vote", "proposal",
)  # fmt: skip
_SUPPORTING = (
    "+1", "lgtm", "sounds", "looks", "agree", "with me", "by me", "for me", "favo", "support",
    "happy", "fine", "ok", "sense", "second",
)  # fmt: skip


def cue_of(sentence: str) -> Cue | None:
    """Say what a sentence does, if it is plain; what is asked or supposed decides nothing.

    >>> [cue_of(each) for each in ("Agreed, let's go with PostgreSQL.", "+1", "Is it decided?")]
    [<Cue.DECIDES: 'decides'>, <Cue.SUPPORTS: 'supports'>, <Cue.ASKS: 'asks'>]
    """
    text = sentence.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").strip()
    if text.rstrip("\"')]").endswith("?"):
        return Cue.ASKS
    low = text.lower()
    if "+1" in low and "-1" in low and _FOR.search(text) and _AGAINST.search(text):
        return None  # it is for one thing, and against another
    if _has(low, _WITHDRAWING) and _WITHDRAWS.search(text):
        return Cue.SUPPORTS
    if _has(low, _OBJECTING) and _OBJECTS.search(text):
        return Cue.OBJECTS
    if _has(low, _DECIDING) and _DECIDES.search(text) and not _UNDECIDED.search(text):
        return Cue.DECIDES
    return Cue.SUPPORTS if _has(low, _SUPPORTING) and _SUPPORTS.search(text) else None


def _has(text: str, words: Sequence[str]) -> bool:
    for word in words:  # noqa: SIM110 (any() takes twice as long, and this is asked often)
        if word in text:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Said:
    """Who did what, in the order in which it was said."""

    sender: str
    cue: Cue | None


_ENOUGH = 2
"""People who agree, where nobody says that something is decided."""


def has_consensus(said: Sequence[Said]) -> bool:
    """Say whether a discussion came to a decision that nobody objected to afterwards.

    An objection is over when its sender agrees later, or when a decision is taken after it.
    """
    decided = False
    agreeing: set[str] = set()
    against: set[str] = set()
    for each in said:
        match each.cue:
            case Cue.DECIDES:
                decided = True
                against.clear()
            case Cue.SUPPORTS:
                agreeing.add(each.sender)
                against.discard(each.sender)
            case Cue.OBJECTS:
                against.add(each.sender)
                agreeing.discard(each.sender)
            case _:
                pass
    return not against and (decided or len(agreeing) >= _ENOUGH)
