"""Where messages begin."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.systems.consensus.mail.boundaries import find_messages
from tests.systems.consensus.hostile import POSTMARK, mbox, message

TWO = mbox(message(1), message(2))


def count(mail: bytes) -> int:
    return len(list(find_messages(mail)))


@pytest.mark.parametrize(
    "postmark",
    [
        b"From ann@example.org Mon Jan  5 10:00:00 2026",
        b"From ann at example.org  Mon Jan  5 10:00:00 2026",
        b"From - Mon Jan 05 10:00:00 2026",
        b"From MAILER-DAEMON Mon Jan  5 10:00 2026",
        b"From 1234567890@xxx Mon Jan 05 10:00:00 +0000 2026",
        b"From ???@??? Mon Jan 05 10:00:00 2026 +0100",
        b"From ann@example.org Mon, 5 Jan 2026 10:00:00 +0100",
        b"From ann@example.org",
    ],
)
def test_postmarks_of_many_programs(postmark: bytes) -> None:
    mail = b"\n".join(
        [postmark, b"Subject: a", b"", b"text", b"", postmark, b"Subject: b", b"", b"x"]
    )
    assert count(mail) == 2
    assert count(mail.replace(b"\n", b"\r\n")) == 2
    assert count(mail.replace(b"\n", b"\r")) == 2


@pytest.mark.parametrize(
    "text",
    [
        b"From here on it is text\n",
        b"\nFrom Monday on we meet at 10:00\n",
        b"\nFrom the year 2026 on:\nSubject: to change\n",
        b"\n>From ann@example.org Mon Jan  5 10:00:00 2026\nSubject: quoted\n",
        b"\n> From ann@example.org Mon Jan  5 10:00:00 2026\n",
        b"\nFrom the minutes of Mon Jan  5 10:00:00 2026\nwe quote\n",
    ],
)
def test_text_is_no_boundary(text: bytes) -> None:
    assert count(POSTMARK + b"Subject: a\n\nbegin\n" + text + b"end\n") == 1


def test_no_empty_line_is_needed_before_a_postmark_that_headers_follow() -> None:
    assert count(POSTMARK + b"Subject: a\n\ntext\n" + POSTMARK + b"Subject: b\n\ntext\n") == 2


def test_empty_lines_at_the_beginning_are_no_message() -> None:
    assert count(b"\n\n" + TWO) == 2


def test_what_stands_before_the_first_message_is_not_passed_over() -> None:
    assert count(b"rubbish\n\n" + TWO) == 3


_PIECES = st.sampled_from(
    [POSTMARK, b"From ", b"\n", b"\r\n", b"\r", b"Subject: x\n", b"text\n", b">"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(_PIECES, st.binary(max_size=20)), max_size=30).map(b"".join))
def test_messages_cover_the_file(mail: bytes) -> None:
    found = list(find_messages(mail))
    assert b"".join(mail[start:end] for start, end in found) == mail
    assert all(start < end for start, end in found)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 999), max_size=8))
def test_what_was_put_in_is_found(numbers: list[int]) -> None:
    assert count(mbox(*map(message, numbers))) == len(numbers)
