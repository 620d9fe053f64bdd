"""Serve an ASGI application with bounds: hosts, body sizes, times, and an orderly stop.

Needs the extra `web`.
"""

from headway.assembly.http_guard import HttpGuard
from headway.assembly.http_server import (
    LAST_REQUESTS,
    StopOrder,
    address_of,
    listen,
    serve_until_told,
)

__all__ = [
    "LAST_REQUESTS",
    "HttpGuard",
    "StopOrder",
    "address_of",
    "listen",
    "serve_until_told",
]
