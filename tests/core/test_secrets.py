"""Passwords do not get into what is kept and shown."""

import pytest

from headway.core.secrets import hidden, without_secrets


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
        '{"token": {"value": "hunter2", "kind": "x"}}',
        '{"password": "a\\"hunter2"}',
        "DB_PASS=hunter2",
        '{"pass": "two hunter2"}',
        "{'auth': ('bob', 'hunter2')}",
        '{"bearer": "hunter2"}',
        "pass=hunter2",
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
        "2 tests passed: all; auth: it failed; the author = Bob; compass=3",
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


@pytest.mark.parametrize("before", [49_980, 49_990, 50_000])
def test_where_a_long_text_is_cut_no_half_of_a_secret_is_left(before: int) -> None:
    text = "x" * before + " amqp://bob:hunter2hunter2@broker " + "y" * 100_000
    turned = "y" * 100_000 + " password='hunter2 hunter2' " + "x" * (before - 10)
    for each in (hidden(text), hidden(turned)):
        assert "unter" not in each
        assert 80_000 < len(each) <= 100_100


@pytest.mark.parametrize(
    "value",
    ["hunter2", "two hunter2", 4711, 47.11, ["hunter2", 4711], {"value": {"hunter2": 4711}}],
)
@pytest.mark.parametrize(
    "name",
    ["password", "DB_PASS", "pass", "dbPass", "Cookie", "auth", "bearer", "Set-Cookie", "jwt"],
)
def test_under_the_name_of_a_secret_all_is_hidden(name: str, value: object) -> None:
    assert without_secrets({"inner": [{name: value, "n": 4711}]}) == {
        "inner": [{name: "***", "n": 4711}]
    }


def test_what_says_nothing_stays_under_any_name() -> None:
    told = {"password": None, "token": "", "has_password": True, "max_tokens": 512, "compass": 3}
    assert without_secrets(told) == told
