"""The shipped mailing list is what it says: whole, imaginary, and able to answer its questions."""

import gzip
import json
import mailbox
import re
from contextlib import closing
from email.header import decode_header, make_header
from email.message import Message
from pathlib import Path

import pytest

from headway.systems.consensus.sample import sample_archives

QUESTIONS = Path(__file__).with_name("questions.json")
NOT_IN_THE_LIST = {"<20250427183000.private1@schoolweer.example.org>"}
"""A mail that was private: its answer went to the list."""

LARGEST = 600_000


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> list[Message]:
    whole = tmp_path_factory.mktemp("sample") / "whole.mbox"
    whole.write_bytes(b"".join(content(path) for path in sample_archives()))
    with closing(mailbox.mbox(whole)) as box:
        return list(box)


def identities(messages: list[Message]) -> list[str]:
    return [message["Message-ID"] for message in messages]


def text_parts(message: Message) -> list[Message]:
    return [part for part in message.walk() if part.get_content_maintype() == "text"]


def test_there_is_a_file_for_each_month_and_one_is_compressed() -> None:
    names = [path.name for path in sample_archives()]
    assert names == [
        "windvane-dev-2025-02.mbox",
        "windvane-dev-2025-03.mbox",
        "windvane-dev-2025-04.mbox.gz",
    ]


def test_the_files_are_small_and_have_the_line_ends_of_unix() -> None:
    texts = [content(path) for path in sample_archives()]
    assert sum(map(len, texts)) < LARGEST
    assert not [text for text in texts if b"\r" in text]


def test_the_readme_counts_the_messages_right(messages: list[Message]) -> None:
    readme = (sample_archives()[0].parent / "README.md").read_text()
    beginnings = [message for message in messages if "In-Reply-To" not in message]
    answers_by_subject_only = [
        message for message in beginnings if message["Subject"].startswith("Re:")
    ]
    threads = len(beginnings) - len(answers_by_subject_only) + len(NOT_IN_THE_LIST)
    assert f"{len(messages)} messages in {threads} threads" in readme
    assert len(answers_by_subject_only) == 1


def test_every_message_has_an_identity_of_its_own(messages: list[Message]) -> None:
    ids = identities(messages)
    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_every_answer_is_to_a_message_of_the_list(messages: list[Message]) -> None:
    known = set(identities(messages))
    answered = {str(message["In-Reply-To"]) for message in messages if "In-Reply-To" in message}
    assert answered - known == NOT_IN_THE_LIST


def test_every_header_and_text_can_be_decoded(messages: list[Message]) -> None:
    for message in messages:
        assert str(make_header(decode_header(message["Subject"]))).strip()
        parts = text_parts(message)
        assert parts, message["Message-ID"]
        for part in parts:
            payload = part.get_payload(decode=True)
            assert isinstance(payload, bytes)
            assert payload.decode(part.get_content_charset("utf-8")).strip()


def test_the_list_has_what_real_lists_have(messages: list[Message]) -> None:
    charsets = {part.get_content_charset() for message in messages for part in text_parts(message)}
    assert {"us-ascii", "utf-8", "iso-8859-1", "iso-8859-2", "windows-1252"} <= charsets
    kinds = {part.get_content_type() for message in messages for part in message.walk()}
    assert {"multipart/alternative", "multipart/mixed", "text/csv", "image/png"} <= kinds
    assert [message for message in messages if message.get_content_type() == "text/html"]
    assert [message for message in messages if message.get_param("format") == "flowed"]
    assert [message for message in messages if "=?iso-2022-jp?" in str(message["Subject"])]
    whole = b"".join(content(path) for path in sample_archives())
    assert re.search(rb"^>From ", whole, re.MULTILINE)
    assert re.search(rb"^>>From ", whole, re.MULTILINE)


def test_no_address_is_that_of_a_real_person() -> None:
    for path in sample_archives():
        text = content(path).decode("utf-8", "replace")
        domains = set(re.findall(r"[\w.+-]+@([\w-]+(?:\.[\w-]+)+)", text))
        real = {name for name in domains if not re.search(r"(^|\.)example\.(org|net|com)$", name)}
        assert domains
        assert not real


def test_every_question_has_its_answer_in_the_list(messages: list[Message]) -> None:
    questions = json.loads(QUESTIONS.read_text())
    known = set(identities(messages))
    assert len(questions) == 20
    for entry in questions:
        assert entry["answers"], entry["question"]
        assert set(entry["answers"]) <= known, entry["question"]
