"""Ports of 127.0.0.1: find a free one, and speak HTTP to a server that listens there."""

import base64
import http.client
import secrets
import socket
from http import HTTPStatus

HOST = "127.0.0.1"

# Below the range from which Linux takes the port of an outgoing connection (32768 and up). A server
# killed and started again would otherwise find its port taken by a client, even by one that is
# trying to reach it: a connection to a closed port of that range can connect to itself.
_FIRST_PORT, _LAST_PORT = 16384, 32767


def free_port() -> int:
    """Give a port on which nothing listens; it stays free across a restart of its server."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT + 1)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def accepts(port: int) -> bool:
    """Say whether someone accepts connections on the port now."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def http_request(
    method: str, port: int, path: str, *, body: str | None = None, login: str | None = None
) -> tuple[int, bytes]:
    """Ask once and give the status and the body; `login` is `user:password`."""
    headers = {"Content-Type": "application/json"}
    if login is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def answers_ok(port: int, path: str, *, login: str | None = None) -> bool:
    """Say whether a GET of the path is answered with 200 now."""
    try:
        status, _ = http_request("GET", port, path, login=login)
    except (OSError, http.client.HTTPException):
        return False
    return status == HTTPStatus.OK
