"""A server that answers as a chat model does, and remembers what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer:
    key = "sk-very-secret-0123456789"

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self._answers: list[tuple[int, dict[str, str], str]] = []

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "summary_backend": "openai",
            "summary_url": f"{self.url}/v1/",
            "summary_model": "tiny",
            "summary_api_key": self.key,
        }

    def says(self, body: str) -> None:
        self._answers.append((200, {}, body))

    def answers(self, text: str) -> None:
        usage = {"prompt_tokens": 11, "completion_tokens": 7}
        answer = {"choices": [{"message": {"content": text, "role": "assistant"}}], "usage": usage}
        self.says(json.dumps(answer))

    def refuses(self, status: int, *, retry_after: int | None = None, text: str = "no") -> None:
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        self._answers.append((status, headers, text))

    def take(self, path: str, key: str, body: bytes) -> tuple[int, dict[str, str], str]:
        self.keys.append(key)
        self.asked.append(json.loads(body))
        if path != "/v1/chat/completions" or not self._answers:
            return 404, {}, f"nothing at {path}"
        return self._answers.pop(0)


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    chat = ChatServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers, text = chat.take(
                self.path, self.headers.get("Authorization", ""), body
            )
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    chat.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield chat
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
