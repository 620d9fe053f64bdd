"""Which chunks of a thread are chosen, and what its request is called."""

import itertools
from typing import Any

import msgspec
import pytest

from headway.systems.consensus import selecting
from headway.systems.consensus.cues import Cue, Said, cue_of, has_consensus
from headway.systems.consensus.selecting import in_order, request, select
from tests.systems.consensus.threads import MOVE, Thread


def chosen(thread: Thread, top_k: int) -> list[tuple[int, str]]:
    """Give the numbers of the chosen messages, and why they were."""
    number = {each["_id"]: place for place, each in enumerate(thread.messages)}
    message = {each["_id"]: number[each["message_doc_id"]] for each in thread.chunks}
    found = select(thread.messages, thread.chunks, top_k)
    return [(message[each.chunk_id], each.source) for each in found]


def long_thread() -> Thread:
    said = [("Anna Berg", f"Something else entirely, number {n}, of no weight.") for n in range(20)]
    said[7] = ("Tom Okafor", "The build server needs a new disk for the build jobs.")
    said[11] = ("Mei Lin", "A new disk for the build server is needed for the build jobs.")
    said[13] = ("Ravi Patel", "+1")
    return Thread(said)


def test_the_first_message_and_the_last_ones_are_chosen_and_what_is_central() -> None:
    found = chosen(long_thread(), 8)
    assert found[:4] == [(0, "first"), (19, "last"), (18, "last"), (13, "decisive")]
    assert {source for _, source in found[4:]} == {"central"}
    assert len(found) == 8


def test_where_somebody_decides_goes_before_where_somebody_agrees() -> None:
    said = [("Anna Berg", f"The disk of build server {n} is full.") for n in range(12)]
    said[4], said[5], said[6] = (
        ("Tom Okafor", "Agreed: we buy a disk."),
        ("Mei Lin", "+1"),
        ("Tom Okafor", "The shop is closed.\nI object to buying two."),
    )
    decisive = [number for number, source in chosen(Thread(said), 8) if source == "decisive"]
    assert decisive == [4, 6]


def test_of_a_long_thread_no_more_is_weighed_than_can_be_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[str] = []

    def counted(sentence: str) -> Cue | None:
        looked_at.append(sentence)
        return cue_of(sentence)

    monkeypatch.setattr(selecting, "cue_of", counted)
    thread = Thread([("Anna Berg", f"Agreed, we take number {n}.\nMore.\n") for n in range(200)])
    sources = [each.source for each in select(thread.messages, thread.chunks, 12)]
    assert len(looked_at) == 3  # one of four may decide, and each decides in its first sentence
    assert sources[:4] == ["first", "last", "last", "last"]


def test_no_more_than_asked_for_are_chosen_and_none_twice() -> None:
    thread = long_thread()
    for top_k in (1, 2, 4, 19, 20, 100):
        found = [number for number, _ in chosen(thread, top_k)]
        assert len(found) == len(set(found)) == min(top_k, 20)
    assert chosen(thread, 1) == [(0, "first")]
    assert select([], [], 5) == []


def test_the_order_in_which_documents_are_read_makes_no_difference() -> None:
    thread = Thread([("Anna Berg", "The very same words each time.")] * 5)
    usual = select(thread.messages, thread.chunks, 3)
    for messages in itertools.permutations(thread.messages):
        assert select(messages, thread.chunks[::-1], 3) == usual


def test_messages_are_in_the_order_of_their_dates_whatever_their_zone() -> None:
    messages: list[dict[str, Any]] = [
        {"_id": "c", "date": "2026-03-01T12:00:00+00:00", "archive_id": "a", "position": 9},
        {"_id": "b", "date": "2026-03-01T12:30:00+02:00", "archive_id": "b", "position": 1},
        {"_id": "d", "date": None, "archive_id": "a", "position": 10},
        {"_id": "e", "date": "2026-03-05", "archive_id": "a", "position": 12},
        {"_id": "a", "date": "no date", "archive_id": "a", "position": 1},
    ]
    for given in itertools.permutations(messages):
        assert [each["_id"] for each in in_order(given)] == ["a", "b", "c", "d", "e"]


def test_a_request_is_named_by_all_chunks_and_not_only_by_the_chosen_ones() -> None:
    def name(thread: Thread, top_k: int = 1) -> str:
        made = request(thread.id, thread.messages, thread.chunks, top_k=top_k, prompt="")
        assert not isinstance(made.context_selection, msgspec.UnsetType)
        return made.context_selection.request_id

    assert name(Thread()) == name(Thread(), 4)
    assert name(Thread()) != name(Thread(MOVE[:3]))
    assert name(Thread()) != name(Thread(root="another@list"))


# Cues


@pytest.mark.parametrize(
    ("sentence", "cue"),
    [
        ("Agreed, let's go with PostgreSQL.", Cue.DECIDES),
        ("OK, we have decided to drop Python 3.8.", Cue.DECIDES),
        ("The decision is to wait for a month.", Cue.DECIDES),
        ("The proposal is accepted.", Cue.DECIDES),
        ("So let's merge it tomorrow.", Cue.DECIDES),
        ("Then we'll go with the second plan.", Cue.DECIDES),
        ("+1", Cue.SUPPORTS),
        ("Sounds good to me.", Cue.SUPPORTS),
        ("I fully agree with Tom.", Cue.SUPPORTS),
        ("No objections from me.", Cue.SUPPORTS),
        ("I withdraw my objection.", Cue.SUPPORTS),
        ("-1, this breaks old clients.", Cue.OBJECTS),
        ("I strongly object to that.", Cue.OBJECTS),
        ("I don\N{RIGHT SINGLE QUOTATION MARK}t agree with the second point.", Cue.OBJECTS),
        ("There is no consensus on this.", Cue.OBJECTS),
        ("Are there any objections?", Cue.ASKS),
        ("Should we go with SQLite?", Cue.ASKS),
        ("It is not yet decided.", None),
        ("If we agreed on that, it would be easy.", None),
        ("The temperature was -12 degrees.", None),
        ("We added 3+1 machines.", None),
        ("The wind came from the north.", None),
    ],
)
def test_what_a_sentence_does(sentence: str, cue: Cue | None) -> None:
    assert cue_of(sentence) is cue


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        ([], False),
        ([("a", Cue.DECIDES)], True),
        ([("a", Cue.SUPPORTS)], False),
        ([("a", Cue.SUPPORTS), ("a", Cue.SUPPORTS)], False),
        ([("a", Cue.SUPPORTS), ("b", Cue.SUPPORTS)], True),
        ([("a", Cue.SUPPORTS), ("b", Cue.SUPPORTS), ("c", Cue.OBJECTS)], False),
        ([("c", Cue.OBJECTS), ("a", Cue.DECIDES)], True),
        ([("a", Cue.DECIDES), ("c", Cue.OBJECTS)], False),
        ([("a", Cue.DECIDES), ("c", Cue.OBJECTS), ("c", Cue.SUPPORTS)], True),
    ],
)
def test_what_counts_as_a_decision(said: list[tuple[str, Cue]], agreed: bool) -> None:  # noqa: FBT001
    assert has_consensus([Said(sender, cue) for sender, cue in said]) is agreed
