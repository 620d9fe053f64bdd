"""A script in the server, called by its name; a server that forgot it is told again."""

import hashlib
from collections.abc import Sequence
from typing import Any

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


class Script:
    """One script and its name. It is safe to call it again after a lost connection."""

    def __init__(self, client: Any, text: str) -> None:
        self._client = client
        self._text = text
        self._name = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], values: Sequence[Any]) -> Any:
        try:
            return await self._client.evalsha(self._name, len(keys), *keys, *values)
        except NoScriptError:  # a restart forgets scripts; so does SCRIPT FLUSH
            return await self._client.eval(self._text, len(keys), *keys, *values)
