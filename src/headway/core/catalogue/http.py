"""HTTP: status codes of the answer, wherever the client library keeps them."""

from headway.core.classify import Rule
from headway.core.failure import Verdict

_ANSWERS = frozenset(
    {
        "httpx.HTTPStatusError",
        "requests.exceptions.HTTPError",
        "aiohttp.client_exceptions.ClientResponseError",
        "urllib.error.HTTPError",
    }
)
_STATUS = ("response.status_code", "status", "code")
_ASK_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})

RULES = (
    *(  # the same twice: where the headers stand depends on the library
        Rule(
            name=name,
            verdict=Verdict.TRANSIENT,
            error_type="HTTP_UNAVAILABLE",
            types=types,
            at=_STATUS,
            codes=_ASK_AGAIN,
            retry_after=headers,
        )
        for name, headers, types in (
            (
                "http.unavailable",
                "response.headers",
                frozenset({"httpx.HTTPStatusError", "requests.exceptions.HTTPError"}),
            ),
            (
                "http.unavailable_2",
                "headers",
                frozenset(
                    {"aiohttp.client_exceptions.ClientResponseError", "urllib.error.HTTPError"}
                ),
            ),
        )
    ),
    Rule(
        name="http.refused",
        verdict=Verdict.PERMANENT,
        error_type="HTTP_REFUSED",
        types=_ANSWERS,
        at=_STATUS,
        codes=frozenset(range(400, 500)) - _ASK_AGAIN,
    ),
    Rule(
        name="http.connection",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset(
            {
                "httpx.NetworkError",
                "httpx.RemoteProtocolError",
                "httpx.TimeoutException",
                "requests.exceptions.ChunkedEncodingError",
                "requests.exceptions.ConnectionError",
                "requests.exceptions.Timeout",
                "aiohttp.client_exceptions.ClientConnectionError",
                "aiohttp.client_exceptions.ClientPayloadError",
                "urllib3.exceptions.ProtocolError",
                "urllib3.exceptions.TimeoutError",
            }
        ),
    ),
)
