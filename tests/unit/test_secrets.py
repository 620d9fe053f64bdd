"""Passwords do not get into what is kept and shown."""

import time

import pytest

from headway import ConfigurationError
from headway.core import secrets
from headway.core.secrets import hide_fields, without_secrets
from headway.settings import hidden, shown_url

HIDDEN = [
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
    "401 for Bearer hunter2.more-of_it",
    "bearer   hunter2",
    'the service said: {"auth": "Bearer hunter2"}',
    r"{\"Authorization\": \"Bearer hunter2\"}",
    r"{\"password\": \"hunter2\"}",
    "{b'authorization': b'Token hunter2'}",
    "[(b'x-api-key', b'hunter2'), (b'host', b'h')]",
    "password=b'hunter2 and more'",
    repr({"password": "a'b\"c-hunter2"}),
    "run --db-password  hunter2",
    "Proxy-Authorization: ApiKey hunter2",
    "X-Api-Key: hunter2",
    "api_key=hunter2",
    "token: hunter2",
    "Incorrect API key provided: hunter2.",
    "http://user:hunter2@host/path?page=1",
    f"http://user:{'x' * 300}hunter2@host",
    "postgresql+psycopg2cffi-by-hand://user:hunter2@host",
    "https://host/path?key=hunter2&page=1",
    "https://store/file?X-Amz-Signature=hunter2",
    "Cookie: session=hunter2; theme=hunter2",
    "refused: sk-proj-abcdefghijklhunter2",
    "it was eyJhbGciOiJIUzI1NiJ9.hunter2.hunter2",
    "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
    "password was 'hunter2'",
    'the password is "hunter2"',
    "password was b'hunter2 and more'",
    "wrong password 'hunter2' for bob",
    "password was hunter2",
    "otp=hunter2",
    "OTP: hunter2",
    "{'user_otp': 'hunter2'}",
    "session_id=hunter2",
    "sessionId: hunter2",
    "PHPSESSID=hunter2",
    "cvv=hunter2",
    "pin=hunter2",
    "cannot reach amqp:/bob:hunter2@h",
    "cannot reach amqp//bob:hunter2@h: no",
    "cannot reach bob:hunter2@h",
    "cannot reach amqp://bob:a hunter2@h",
    "cannot reach amqp://bob:a'hunter2@h",
    "run --verbose --db-password hunter2",
    "run --token=hunter2",
    "{:password => 'hunter2'}",
]
STAYS = [
    "",
    "password authentication failed for user 'a'",
    "see https://example.com/a:b for more",
    "column 5: unexpected end",
    "2 tests passed: all; auth: it failed; the author = Bob; compass=3",
    "Basic authentication is required",
    "BASIC AUTH, or basic usage; Basic: 2025 plan",
    "a bearer token is missing",
    'WWW-Authenticate: Bearer realm="x"',
    "Retry attempt 1/5 for event with idempotency key: embedding-5456680c",
    "the password was wrong, and the token is expired",
    "http://host:80 did not answer: write to me@example.com",
    "mailto:me@example.com",
    "opt=1 spin: 5 pinned=2 shipping: x",
    "run --verbose --keep dir",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_a_secret_is_hidden(text: str) -> None:
    assert "hunter2" not in hidden(text)
    assert "***" in hidden(text)


@pytest.mark.parametrize("text", STAYS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hidden(text) == text


@pytest.mark.parametrize("said", ["dXNlcjpodW50ZXIy", "dTpw", "bWU6cHc=", "YTo/Pz8="])
@pytest.mark.parametrize("text", ["no: Basic {}", "{{'h': 'basic {}'}}", 'Basic {}"', "Basic {}."])
def test_a_name_and_password_in_base64_are_hidden(text: str, said: str) -> None:
    assert said not in hidden(text.format(said))
    assert "asic ***" in hidden(text.format(said))


def test_what_surrounds_a_secret_stays() -> None:
    text = "POST http://u:p@host answered 401: Authorization: Basic dTpw, Host: x (attempt 2)"
    plain = "POST http://u:***@host answered 401: Authorization: ***, Host: x (attempt 2)"
    assert hidden(text) == plain


HOSTILE = [
    "a.a.", "a://b:", "a://b:c d", "token", "token ", "token=", "--token", "-", "('", "('token",
    "a:b@", "eyJ-", "eyJaaaaaaaa.", "bearer ", "basic aB", "basic aaaaaaaa.", "-----BEGIN ",
    "password='", "password=\\", "password was ", "passwordpassword ", "x" * 97 + " ", "://", "@",
    ":", "cookie:",
]  # fmt: skip


def took(text: str) -> float:
    """Give the least time that a search took, of the processor's time: others are at work too."""
    times = []
    for _ in range(3):
        start = time.thread_time()
        hidden(text)
        times.append(time.thread_time() - start)
    return min(times)


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_text_and_of_a_very_long_one_only_the_ends_are_searched(
    piece: str,
) -> None:
    short = (piece * 12_000)[:12_000]
    eightfold = took(short * 8)
    assert eightfold < 12 * took(short) + 0.001
    assert took(short * 80) < 4 * eightfold + 0.001


def test_a_secret_of_any_length_is_hidden_to_its_end() -> None:
    for text in ("password={}", "password='{}'", "Cookie: a={}", "Bearer {}", "amqp://bob:{}@h"):
        assert "hunter2" not in hidden(text.format("x" * 30_000 + "hunter2"))


URLS = {
    "amqp://bob:hunter2@h:5672/shop": "amqp://bob:***@h:5672/shop",
    "amqp://bob:hunter2@[::1]:5672": "amqp://bob:***@[::1]:5672",
    "amqp://bob:hun'ter2@h": "amqp://bob:***@h",
    "amqp://bob:hunter2%40%23%20@h": "amqp://bob:***@h",
    "redis://:hunter2@h/0": "redis://:***@h/0",
    "https://hunter2@h/path": "https://***@h/path",
    "redis://hunter2@h/0": "redis://***@h/0",
    "postgresql://bob@h/app": "postgresql://bob@h/app",
    "postgresql://bob%3Ahunter2@h/app": "postgresql://***@h/app",
    "postgresql://h/x?pass%77ord=hunter2": "postgresql://h/x?password=***",
    "mongodb://me:hunter2@one:1,two:2/app?replicaSet=rs0": (
        "mongodb://me:***@one:1,two:2/app?replicaSet=rs0"
    ),
    "postgresql://h/app?user=bob&password=hunter2": "postgresql://h/app?user=bob&password=***",
    "postgresql://bob:hunter2@/app?host=/tmp": "postgresql://bob:***@/app?host=/tmp",
    "http://h:80/p?key=hunter2&page=1": "http://h:80/p?key=***&page=1",
    "kafka://broker": "kafka://broker",
    "sqlite:///my 'own' file@home.db?synchronous=off": (
        "sqlite:///my 'own' file@home.db?synchronous=off"
    ),
    "": "",
    # Not well formed: any part may be the password.
    "amqp://bob:a hunter2@h": "amqp://***",
    'amqp://bob:a"hunter2@h': "amqp://***",
    "amqp://bob:a@hunter2@h": "amqp://***",
    "amqp://bob:a#hunter2@h": "amqp://***",
    "amqp://bob:1#hunter2": "amqp://***",
    "amqp://bob:1/hunter2@h": "amqp://***",
    "amqp://bob:1?hunter2@h": "amqp://***",
    "amqp://bob:hunter2": "amqp://***",
    "amqp://bob:\nhunter2@h": "amqp://***",
    "amqp://bob@h:hunter2@h": "amqp://***",
    "amqp:/bob:hunter2@h": "amqp://***",
    "AMQP:bob:hunter2@h": "AMQP://***",
    "amqp//bob:hunter2@h": "***",
    " amqp://bob:hunter2@h": "***",
    "bob:hunter2@h": "***",
    "hunter2": "***",
    f"postgresql://h/app?{'&' * 1_000}hunter2": "postgresql://h/app?***",
}


@pytest.mark.parametrize(("url", "shown"), URLS.items())
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert "hunter2" not in hidden(f"cannot use {shown}")


def test_names_of_the_users_own_are_hidden_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_own", ())  # as it was, after the test
    plain = {"customerIban": "hunter2", "iban_old": 5, "tax-id": [1], "libanon": 1, "n": "iban=x"}
    assert without_secrets(plain) == plain
    hide_fields("iban", "Tax ID")
    assert without_secrets(plain) == {
        "customerIban": "***",
        "iban_old": "***",
        "tax-id": "***",
        "libanon": 1,
        "n": "iban=***",
    }
    for text in ("IBAN: hunter2", "iban was 'hunter2'", "{'tax_id': 'hunter2'}", "taxid=hunter2"):
        assert "hunter2" not in hidden(text)
    assert "hunter2" not in hidden("password=hunter2")


@pytest.mark.parametrize("name", ["", "x", "a|b", "(", "x" * 101])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="Invalid name of a secret field"):
        hide_fields(name)


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


def test_what_says_nothing_stays_under_any_name_and_depth_does_not_matter() -> None:
    told = {"password": None, "token": "", "has_password": True, "max_tokens": 512, "compass": 3}
    assert without_secrets(told) == told
    given = {
        "headers": [["authorization", "Bearer hunter2"], ("accept", "*/*")],
        "inner": {"http://u:hunter2@host": 1, "attempt": 2},
    }
    assert without_secrets(given) == {
        "headers": [["authorization", "Bearer ***"], ["accept", "*/*"]],
        "inner": {"http://u:***@host": 1, "attempt": 2},
    }
