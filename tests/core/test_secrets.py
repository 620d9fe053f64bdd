"""Passwords do not get into what is kept and shown."""

import pytest

from headway.core.secrets import hidden


@pytest.mark.parametrize(
    "text",
    [
        "DB_PASSWORD=hunter2",
        "{'db_password': 'hunter2'}",
        "client_secret=hunter2",
        "AWS_SECRET_ACCESS_KEY=hunter2",
        "refresh_token=hunter2",
        "private_key=hunter2",
        "passphrase: hunter2",
        "pw=hunter2",
        "AccountKey=hunter2",
        "mysqldump --password hunter2 shop",
        "https://hunter2@example.com",
        "postgresql://u:p@hunter2@host/db",
        "amqp://user:hunter2@broker",
        "Authorization: Token hunter2",
        "Authorization: Bearer hunter2",
        "password='hunter2 and more'",
        'password="a,hunter2"',
        '{"password": ["hunter2"]}',
    ],
)
def test_a_secret_is_hidden(text: str) -> None:
    assert "hunter2" not in hidden(text)
    assert "***" in hidden(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "password authentication failed for user 'a'",
        "see https://example.com/a:b for more",
        "column 5: unexpected end",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hidden(text) == text


@pytest.mark.parametrize(
    "text",
    ["a.a." * 250_000, bytes(range(256)).hex("-") * 2_000, "a://b:" * 200_000, "token" * 300_000],
)
@pytest.mark.timeout(20)
def test_a_very_long_text_is_looked_through_in_no_time(text: str) -> None:
    # The limit is generous: what grew with the square of the length took minutes.
    assert len(hidden(text)) <= len(text)
