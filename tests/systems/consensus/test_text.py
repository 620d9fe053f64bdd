"""Chunks, words and snippets of any text."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.systems.consensus.models.wordllama import WordLlamaTokenizer
from headway.systems.consensus.text.chunks import Chunk, chunked
from headway.systems.consensus.text.snippets import snippet
from headway.systems.consensus.text.tokens import PlainTokenizer
from headway.systems.consensus.text.words import places, terms, terms_of_question

PLAIN = PlainTokenizer()

PARTS = ["retry", "the", "schedule.", "Why?", "...", "naïve!)", "- item", "a" * 90, "é", "e\u0301"]
GAPS = ["\n\n", "\n", " ", "\t", "\r\n", "\u00a0"]
FOREIGN = ["再試行する。", "👩\u200d👩\u200d👧", "\U0001f3fb" * 9]
WORDS = st.lists(st.sampled_from([*PARTS, *GAPS, *FOREIGN]), max_size=60)
TEXTS = st.one_of(st.text(max_size=400), WORDS.map(" ".join), WORDS.map("".join))


def assert_nothing_is_lost(text: str, chunks: list[Chunk]) -> None:
    left = list(text)
    for chunk in chunks:
        end = chunk.offset + len(chunk.text)
        assert text[chunk.offset : end] == chunk.text
        assert chunk.text.strip() == chunk.text != ""
        left[chunk.offset : end] = " " * len(chunk.text)
    assert not "".join(left).strip()


# Chunks


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, size=st.integers(1, 40), part=st.floats(0, 0.5))
def test_no_text_is_lost_and_no_chunk_is_too_large(text: str, size: int, part: float) -> None:
    overlap = int(size * part)
    chunks = chunked(text, PLAIN, size=size, overlap=overlap)
    assert_nothing_is_lost(text, chunks)
    assert bool(chunks) == bool(text.strip())
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    ends = [chunk.offset + len(chunk.text) for chunk in chunks]
    assert ends == sorted(set(ends)), "a chunk lies within the one before it"
    for chunk in chunks:
        assert (chunk.tokens,) == tuple(PLAIN.count([chunk.text]))
        assert chunk.tokens <= size or len(chunk.text) == 1


@settings(max_examples=25, deadline=None)
@given(text=TEXTS)
def test_the_same_by_the_tokens_of_the_model(text: str) -> None:
    chunks = chunked(text, WordLlamaTokenizer(), size=16, overlap=4)
    assert_nothing_is_lost(text, chunks)


HOSTILE = {
    "one word": "a" * 100_000,
    "no gaps": "再" * 30_000,
    "emoji": "\U0001f600" * 20_000,
    "accents": "e" + "\u0301" * 30_000,
    "space": " " * 100_000 + "x",
    "dots": "." * 100_000,
    "empty lines": "\n" * 50_000 + "end",
    "words": "word " * 30_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.timeout(20)
def test_a_long_hostile_text_is_chunked_in_no_time(text: str) -> None:
    chunks = chunked(text, PLAIN, size=384, overlap=64)
    assert_nothing_is_lost(text, chunks)
    # Each brings at least half of its size that is new, less the overlap and one piece.
    assert len(chunks) <= 2 + sum(chunk.tokens for chunk in chunks) / 96


def test_a_short_text_is_one_chunk_and_an_empty_one_is_none() -> None:
    (only,) = chunked("\n  Agreed. \n", PLAIN, size=16)
    assert (only.offset, only.text) == (3, "Agreed.")
    assert chunked(" \n\t\u00a0", PLAIN, size=16) == []


def test_chunks_end_with_a_paragraph_rather_than_with_a_sentence_or_a_word() -> None:
    first = "We measured it twice. It was slow both times."
    second = "Nobody knows why. Let us ask the others."
    chunks = chunked(f"{first}\n\n{second}", PLAIN, size=18)
    assert [chunk.text for chunk in chunks] == [first, second]
    words = chunked(f"{first} {second}", PLAIN, size=14)
    assert all(chunk.text.endswith(".") for chunk in words)


def test_neighbours_have_a_whole_sentence_in_common() -> None:
    text = " ".join(f"This is sentence number {n}." for n in range(20))
    chunks = chunked(text, PLAIN, size=40, overlap=10)
    for one, after in pairwise(chunks):
        shared = one.offset + len(one.text) - after.offset
        assert shared > 0
        assert one.text.endswith(after.text[:shared])
        assert after.text.startswith("This is")


def test_a_chunk_begins_with_a_whole_sentence_rather_than_with_part_of_one() -> None:
    long = "So " + "word " * 30 + "end."
    text = " ".join([long, "It is so."] * 6)
    chunks = chunked(text, PLAIN, size=44, overlap=22)
    # Half of the long sentence would be within the overlap too.
    assert [chunk.text[:5] for chunk in chunks[1:]] == ["It is"] * (len(chunks) - 1)


@pytest.mark.parametrize("before", ["", "x", "xy"])
def test_an_emoji_of_several_characters_is_not_cut_in_two(before: str) -> None:
    family = "👩\u200d👩\u200d👧"
    chunks = chunked(before + family * 40, PLAIN, size=30)
    assert len(chunks) > 1
    assert all(re.fullmatch(f"x?y?({family})+", chunk.text) for chunk in chunks)


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (10, 6), (10, -1)])
def test_an_overlap_of_more_than_half_is_refused(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="at most half the size"):
        chunked("text", PLAIN, size=size, overlap=overlap)


# Words


def test_forms_of_a_word_are_compared_as_one() -> None:
    for forms in (
        "retry retries retried retrying",
        "station stations Station's",
        "stop stopped stopping",
        "agree agreed agrees",
        "name named naming",
        "policy policies",
        "café cafe CAFÉ",
    ):
        assert len(set(terms(forms))) == 1, forms
    assert len(set(terms("status stations bus class"))) == 4


def test_a_question_is_asked_by_its_telling_words() -> None:
    asked = terms_of_question("Why did we move the nightly build, and who moved it?")
    assert asked == ["mov", "nightli", "build"]
    assert terms_of_question("What is it?") == ["what", "is", "it"]
    assert terms_of_question("?!") == []


def test_chinese_and_japanese_are_found_by_any_two_neighbours() -> None:
    assert places("我们同意重试", terms("重试")) == [(4, 6)]
    assert terms("字") == ["字"]


@given(st.text(max_size=200))
@example("0'\u3400")
def test_every_term_can_be_stored_and_is_found_where_it_stands(text: str) -> None:
    found = terms(text)
    assert all(term and term.isalnum() for term in found)
    if found:
        assert places(text, found)


# Snippets


def test_a_snippet_shows_the_place_with_most_of_the_words_and_marks_them() -> None:
    text = "Hello all. " * 40 + "The nightly builds were moved to 03:00.\nThanks. " + "Bye. " * 80
    shown = snippet(text, terms_of_question("Why was the nightly build moved?"))
    assert "**nightly** **builds** were **moved**" in shown.marked()
    assert shown.text.startswith("…")
    assert shown.text.endswith("…")
    assert len(shown.text) <= 242
    assert "".join(part for part, _ in shown.parts()) == shown.text


@given(text=TEXTS, question=st.text(max_size=40))
def test_a_snippet_is_part_of_its_text_whatever_that_is(text: str, question: str) -> None:
    shown = snippet(text, terms(question), longest=60)
    assert shown.text.strip("…").strip() in " ".join(text.split())
    assert "".join(part for part, _ in shown.parts()) == shown.text
