"""Questions in plain words, and the messages that they find."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headway.systems.consensus.identity import chunk_id
from headway.systems.consensus.mail.boundaries import find_messages
from headway.systems.consensus.mail.fields import base_subject
from headway.systems.consensus.mail.reading import read_mail
from headway.systems.consensus.models.wordllama import WordLlama, WordLlamaTokenizer
from headway.systems.consensus.sample import sample_archives
from headway.systems.consensus.search import Search, open_search
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.text.chunks import chunked
from headway.systems.consensus.vectors.file import FileVectors
from headway.systems.consensus.vectors.store import Passage, Point, open_vectors
from tests.systems.consensus.passages import LettersEmbedder, an_id, passage, point

QUESTIONS = Path(__file__).with_name("questions.json")
LATEST = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> ConsensusSettings:
    """Give settings whose folder holds the vectors of the list that ships with the package."""
    given = ConsensusSettings(data=tmp_path_factory.mktemp("list"))
    passages = [
        each for number, mail in enumerate(_mails()) for each in _passages(number, mail, given)
    ]
    model = WordLlama()
    vectors = model.embed(
        [each.text for each in passages], [base_subject(each.subject)[0] for each in passages]
    )
    store = open_vectors(given, model.model)
    store.upsert([Point(vector=v, passage=p) for v, p in zip(vectors, passages, strict=True)])
    store.close()
    return given


def _mails() -> list[bytes]:
    mails: list[bytes] = []
    for path in sample_archives():
        content = path.read_bytes()
        mail = gzip.decompress(content) if path.suffix == ".gz" else content
        mails += [mail[start:end] for start, end in find_messages(mail)]
    return mails


def _passages(number: int, message: bytes, settings: ConsensusSettings) -> list[Passage]:
    mail = read_mail(message, latest=LATEST)
    key = an_id(number)
    return [
        passage(
            "unused",
            chunk.text,
            chunk_id=chunk_id(key, chunk.index),
            message_doc_id=key,
            message_id=mail.envelope.message_id,
            subject=mail.envelope.subject,
        )
        for chunk in chunked(
            mail.text,
            WordLlamaTokenizer(),
            size=settings.chunk_tokens,
            overlap=settings.chunk_overlap,
        )
    ]


def test_questions_about_the_list_find_their_message_among_the_first_five(
    settings: ConsensusSettings, record_property: Callable[[str, object], None]
) -> None:
    search = open_search(settings)
    asked = json.loads(QUESTIONS.read_text())
    missed: list[str] = []
    for each in asked:
        answers = {answer.strip("<>") for answer in each["answers"]}
        hits = search.find(each["question"], 5)
        assert len({hit.message_doc_id for hit in hits}) == 5
        if answers.isdisjoint(hit.passage.message_id.strip("<>") for hit in hits):
            missed.append(each["question"])
    search.close()
    record_property("found", f"{len(asked) - len(missed)} of {len(asked)}")
    assert len(asked) == 20
    assert len(missed) <= 4, missed


def test_a_hit_says_where_it_is_and_marks_the_words(settings: ConsensusSettings) -> None:
    search = open_search(settings)
    hit = search.find("Why was the nightly build moved to 03:00?", 1)[0]
    search.close()
    assert "**nightly build**" in hit.snippet.marked().replace("** **", " ").lower()
    assert hit.passage.subject
    assert hit.thread_id == an_id("thread")


def _search(tmp_path: Path, *points: Point) -> Search:
    store = FileVectors(tmp_path / "vectors.db", model="letters-3")
    store.upsert(points)
    return Search(LettersEmbedder(), store)


def test_a_message_is_found_once_by_the_best_of_its_chunks(tmp_path: Path) -> None:
    search = _search(
        tmp_path,
        point("one", 1, 0, 0, text="alpha", message_doc_id="m"),
        point("two", 1, 1, 0, text="alpha beta", message_doc_id="m"),
        point("other", 0, 0, 1, text="gamma"),
    )
    hits = search.find("alpha beta", 5)
    assert [hit.passage.text for hit in hits] == ["alpha beta", "gamma"]
    search.close()


def test_a_message_of_two_archives_is_shown_once(tmp_path: Path) -> None:
    search = _search(
        tmp_path,
        point("one", 1, 0, 0, text="alpha", message_id="x@example.org"),
        point("copy", 1, 0, 0, text="alpha", message_id="x@example.org"),
        point("another", 1, 0, 0, text="alpha again", message_id="x@example.org"),
    )
    assert sorted(hit.passage.text for hit in search.find("alpha", 5)) == ["alpha", "alpha again"]
    search.close()


def test_what_is_meant_and_what_is_said_are_both_found(tmp_path: Path) -> None:
    search = _search(
        tmp_path,
        point("meant", 1, 0, 0, text="nothing like it"),
        point("said", 0, 0, 1, text="Zanzibar"),
        point("neither", 0, 1, 0, text="other"),
    )
    hits = search.find("a Zanzibar", 3)
    assert {hit.passage.text for hit in hits[:2]} == {"nothing like it", "Zanzibar"}
    search.close()


def test_no_question_and_no_vectors_find_nothing(tmp_path: Path) -> None:
    search = _search(tmp_path)
    assert search.find("alpha") == []
    assert search.find("?!") == []
    assert search.find("alpha", 0) == []
    search.close()
