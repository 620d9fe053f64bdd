"""Questions in plain words, the messages that they find, and the list that ships for them."""

import gzip
import json
import mailbox
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headway.systems.consensus.events import ArchiveSubmitted, plain
from headway.systems.consensus.sample import sample_archives
from headway.systems.consensus.search import Search, open_search
from headway.systems.consensus.services.chunking import chunking_service
from headway.systems.consensus.services.embedding import embedding_service
from headway.systems.consensus.services.ingestion import ingestion_service
from headway.systems.consensus.services.parsing import parsing_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.vectors.file import FileVectors
from headway.testing.trial import Trial
from tests.systems.consensus.passages import LettersEmbedder, point

QUESTIONS = Path(__file__).with_name("questions.json")


async def test_questions_about_the_list_find_their_message_among_the_first_five(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    settings = ConsensusSettings(data=tmp_path)
    services = (ingestion_service, parsing_service, chunking_service, embedding_service)
    trial = Trial(*(make(settings) for make in services))
    for path in sample_archives():
        submitted = ArchiveSubmitted(path=str(path), source_name="windvane")
        await trial.publish("ArchiveSubmitted", plain(submitted))
    await trial.run()
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
    assert len(missed) <= 4, missed


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("alpha beta", ["alpha beta", "alpha"]),  # once, by the best of its chunks
        ("?!", []),
    ],
)
def test_each_message_is_found_once(tmp_path: Path, question: str, found: list[str]) -> None:
    store = FileVectors(tmp_path / "vectors.db", model="letters-3")
    store.upsert(
        [
            point("one", 1, 0, 0, text="alpha", message_id="x@example.org"),
            point("copy", 1, 0, 0, text="alpha", message_id="x@example.org"),  # in another archive
            point("two", 1, 1, 0, text="alpha again", message_doc_id="m"),
            point("three", 1, 1, 0, text="alpha beta", message_doc_id="m"),
        ]
    )
    search = Search(LettersEmbedder(), store)
    texts = [hit.passage.text for hit in search.find(question, 5)]
    search.close()
    assert sorted(texts[:2]) == sorted(found)
    assert len(set(texts)) == len(texts)


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def test_the_list_is_small_and_imaginary_and_has_every_answer(tmp_path: Path) -> None:
    whole = b"".join(content(path) for path in sample_archives())
    assert len(whole) < 600_000
    domains = set(re.findall(rb"[\w.+-]+@([\w-]+(?:\.[\w-]+)+)", whole))
    assert domains
    assert [
        each for each in domains if not re.search(rb"(^|\.)example\.(org|net|com)$", each)
    ] == []
    (tmp_path / "whole.mbox").write_bytes(whole)
    with closing(mailbox.mbox(tmp_path / "whole.mbox")) as box:
        ids = [message["Message-ID"] for message in box]
    assert len(set(ids)) == len(ids) == 424
    for entry in json.loads(QUESTIONS.read_text()):
        assert set(entry["answers"]) <= set(ids), entry["question"]
