"""A script in the server, called by its name; a server that forgot it is told again."""

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from redis.exceptions import NoScriptError

NOW = """
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local function int(number)
  return string.format('%.0f', number)
end
"""
"""The time that was given, or else the server's, in microseconds."""


class Calls(Protocol):
    """A client of redis-py, or our own connection."""

    async def execute_command(self, *parts: Any) -> Any: ...

    async def aclose(self) -> None: ...


class Script:
    """One script and its name. It is safe to call it again after a lost connection."""

    def __init__(self, calls: Calls, text: str) -> None:
        self._calls = calls
        self._text = text
        self._name = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], values: Sequence[Any]) -> Any:
        try:
            return await self._calls.execute_command(
                "EVALSHA", self._name, len(keys), *keys, *values
            )
        except NoScriptError:  # a restart forgets scripts; so does SCRIPT FLUSH
            return await self._calls.execute_command("EVAL", self._text, len(keys), *keys, *values)
