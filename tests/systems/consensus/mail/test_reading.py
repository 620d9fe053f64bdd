"""Messages, however broken: read, or refused by name."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.systems.consensus.mail.errors import MailError, TooLargeError, UnreadableMailError
from headway.systems.consensus.mail.reading import MOST_BYTES, Mail, read_envelope, read_mail
from tests.systems.consensus.hostile import (
    EMPTY,
    PLAIN,
    POSTMARK,
    READABLE,
    UNREADABLE,
    message,
    nested,
)

LATEST = datetime(2026, 6, 1, tzinfo=UTC)


def read(raw: bytes) -> Mail:
    return read_mail(raw, latest=LATEST)


@pytest.mark.parametrize("name", READABLE)
def test_what_people_wrote_is_read(name: str) -> None:
    raw, text = READABLE[name]
    mail = read(raw)
    assert text in mail.text
    assert_can_be_stored(mail)


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_say_is_no_error(name: str) -> None:
    assert read(EMPTY[name]).text == ""


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_message_is_refused(name: str) -> None:
    with pytest.raises(UnreadableMailError, match="are no message"):
        read(POSTMARK + UNREADABLE[name])


def test_a_message_of_any_size_is_not_read() -> None:
    with pytest.raises(TooLargeError, match="26 MB"):
        read(PLAIN + b"x" * MOST_BYTES)


def assert_can_be_stored(mail: Mail) -> None:
    envelope = mail.envelope
    texts = [mail.text, mail.quoted, mail.signature, envelope.subject, envelope.message_id]
    texts += [envelope.sender.name, envelope.sender.email, *envelope.references]
    whole = "\n".join(texts)
    whole.encode()
    assert "\0" not in whole
    assert "\r" not in whole


_PIECES = st.sampled_from(
    [
        *(raw for raw, _ in list(READABLE.values())[:20]),
        b"\nContent-Type: multipart/mixed; boundary=b\n\n",
        *(b"--b\n", b"--b--\n", b"\n\n", b"=?utf-8?b?4pi", b"?=", b"> ", b"-- \n", POSTMARK),
        *(b"Content-Type: text/html\n\n<p <!-- <script", b"Subject: ", b"Date: ", b"\0", b"\xff"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(_PIECES, st.binary(max_size=40)), max_size=12).map(b"".join))
def test_any_bytes_are_read_or_refused_by_name(raw: bytes) -> None:
    try:
        mail = read(raw)
    except MailError:
        return
    assert_can_be_stored(mail)
    assert mail == read(raw)
    assert mail.envelope == read_envelope(raw, latest=LATEST)


@pytest.mark.parametrize(
    "more",
    [b"X-Trace: " + b"a" * 300_000, b"X-Trace: a\n b\n" * 22_000, b"\n b" * 100_000],
    ids=["one long line", "many fields", "one folded field"],
)
def test_a_long_header_does_not_become_text(more: bytes) -> None:
    for cut in range(12):  # wherever the looking at it ends
        head = b"Subject: s" + b"x" * cut + b"\n" + more.strip(b"\n")
        assert read(head + b"\nTo: b@b.example\n\nHello.\n").text == "Hello."
        assert read(head + b"\nTo: b@b.example\n").text == ""


def test_a_message_without_an_id_is_named_by_its_content() -> None:
    one = read(message(1, Message_ID="")).envelope.message_id
    again = read(POSTMARK + message(1, Message_ID="") + b"\n\n").envelope.message_id
    other = read(message(2, Message_ID="")).envelope.message_id
    assert one == again
    assert one != other


@pytest.mark.parametrize(
    ("head", "subject"),
    [
        (b"Subject: =?utf-8?B?w5xiZXI=?= =?utf-8?q?_alles?=", "Über alles"),
        (b"Subject: =?utf-8?B?4pg=?=\n =?utf-8?B?gg==?= wet", "☂ wet"),  # cut within a letter
        (b"Subject: =?utf-8?B?w5xiZXI?= x", "Über x"),  # without its padding
        (b"Subject: =?x-moon?q?caf=E9?=", "café"),
        (b"Subject: =?utf-8?x?no?= =?utf-8", "=?utf-8?x?no?= =?utf-8"),
        (b"Subject: caf\xe9", "café"),
        (b"Subject: a\n\tb\n  c", "a b c"),
        (b"Subject:\nSubject: second", "second"),
        (b"Subject : spaced", "spaced"),
    ],
)
def test_subjects(head: bytes, subject: str) -> None:
    assert read(head + b"\nTo: x@y\n\n.").envelope.subject == subject


@pytest.mark.parametrize(
    ("field", "name", "email"),
    [
        (b'"Bee, Ann" <ann@x.org>', "Bee, Ann", "ann@x.org"),
        (b"ann at x.org (Ann Bee)", "Ann Bee", "ann@x.org"),
        (b"=?iso-8859-1?q?J=F6rg?= <j@x.org>", "Jörg", "j@x.org"),
        (b"Ann <ann@x.org", "Ann", "ann@x.org"),
        (b"nobody in particular", "nobody in particular", ""),
    ],
)
def test_senders(field: bytes, name: str, email: str) -> None:
    sender = read(b"Subject: x\nFrom: " + field + b"\n\n.").envelope.sender
    assert (sender.name, sender.email) == (name, email)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        (b"Mon, 5 Jan 2026 10:00:00 +0100", "2026-01-05T09:00:00+00:00"),
        (b"5 Jan 2026 10:00", "2026-01-05T10:00:00+00:00"),
        (b"2026-01-05T10:00:00Z", "2026-01-05T10:00:00+00:00"),
        (b"Mon, 5 Jan 2026 10:00:60 +9900", "2026-01-05T10:00:59+00:00"),
        (b"Mon, 5 Jan 2099 10:00:00 +0000", None),  # the far future
        (b"Thu, 1 Jan 1970 00:00:00 +0000", None),  # a clock that was never set
        (b"Mon, 99 Foo 99999 99:99:99", None),
        (b"yesterday", None),
    ],
)
def test_dates(date: bytes, expected: str | None) -> None:
    read_date = read(b"From: a@b\nDate: " + date + b"\n\n.").envelope.date
    assert (read_date and read_date.isoformat()) == expected


def test_a_wrong_date_is_mended_by_who_received_the_message() -> None:
    wrong = b"From: a@b\nDate: Mon, 5 Jan 2099 10:00:00 +0000\n"
    received = b"Received: from x by y; Tue, 6 Jan 2026 10:00:00 +0000\n"
    assert read(wrong + received + b"\n.").envelope.date == datetime(2026, 1, 6, 10, tzinfo=UTC)
    assert read(POSTMARK + wrong + b"\n.").envelope.date == datetime(2026, 1, 5, 10, tzinfo=UTC)


def test_if_all_agree_on_a_later_date_our_own_clock_is_wrong() -> None:
    early = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=1)
    assert read_mail(POSTMARK + PLAIN, latest=early).envelope.date is not None


@pytest.mark.parametrize("depth", [5, 19, 500, 20_000])
def test_nesting_has_a_limit(depth: int) -> None:
    assert ("at the bottom" in read(nested(depth)).text) == (depth < 20)


def test_parts_have_a_limit() -> None:
    head = b"From: a@b\nContent-Type: multipart/mixed; boundary=b\n\n"
    text = read(head + b"--b\n\nx\n" * 50_000).text
    assert text.count("x") == 500
