"""Secrets that no name gives away: they are known by where they stand and by how they look."""

import pytest

from headway.core.secrets import without_secrets
from headway.settings import hidden


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_a_secret_is_hidden(text: str) -> None:
    assert "hunter2" not in hidden(text)
    assert "***" in hidden(text)


@pytest.mark.parametrize("said", ["dXNlcjpodW50ZXIy", "dTpw", "bWU6cHc=", "YTo/Pz8="])
@pytest.mark.parametrize("text", ["no: Basic {}", "{{'h': 'basic {}'}}", 'Basic {}"', "Basic {}."])
def test_a_name_and_password_in_base64_are_hidden(text: str, said: str) -> None:
    assert said not in hidden(text.format(said))
    assert "asic ***" in hidden(text.format(said))


def test_what_surrounds_a_secret_stays() -> None:
    text = "POST http://u:p@host answered 401: Authorization: Basic dTpw, Host: x (attempt 2)"
    plain = "POST http://u:***@host answered 401: Authorization: ***, Host: x (attempt 2)"
    assert hidden(text) == plain


def test_secrets_are_hidden_at_any_depth() -> None:
    given = {
        "headers": [["authorization", "Bearer hunter2"], ("accept", "*/*")],
        "inner": {"http://u:hunter2@host": 1, "attempt": 2},
    }
    assert without_secrets(given) == {
        "headers": [["authorization", "Bearer ***"], ["accept", "*/*"]],
        "inner": {"http://u:***@host": 1, "attempt": 2},
    }


@pytest.mark.parametrize(
    "text",
    [
        "Basic authentication is required",
        "BASIC AUTH, or basic usage; Basic: 2025 plan",
        "a bearer token is missing",
        'WWW-Authenticate: Bearer realm="x"',
        "Retry attempt 1/5 for event with idempotency key: embedding-5456680c",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hidden(text) == text
