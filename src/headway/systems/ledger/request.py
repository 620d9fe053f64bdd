"""Read a request without trusting it: no body larger than allowed, no key that cannot be kept."""

import re

from fastapi import Request
from starlette.requests import ClientDisconnect

from headway import HeadwayError
from headway.systems.ledger import answers
from headway.systems.ledger.answers import Answer

_KEY = re.compile(r"[\x21-\x7e]{1,200}")


class UnacceptableRequestError(HeadwayError):
    """A request that is turned away before anybody looks at its events."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(answer.body["message"])


async def read_body(request: Request, limit: int) -> bytes:
    """Collect the body, giving up as soon as it is, or says it will be, too large."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise UnacceptableRequestError(answers.too_large(limit))
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise UnacceptableRequestError(answers.too_large(limit))
    except ClientDisconnect:
        raise UnacceptableRequestError(answers.malformed("the sender left in the middle")) from None
    return bytes(body)


def idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and _KEY.fullmatch(key) is None:
        raise UnacceptableRequestError(
            answers.refused(
                "use 1 to 200 visible ASCII characters without spaces", field="Idempotency-Key"
            )
        )
    return key
