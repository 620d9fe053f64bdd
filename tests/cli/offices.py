"""Sequences to try `headway order` on."""

import asyncio
import json
from typing import Any

from typer.testing import CliRunner, Result

from headway.engines import open_sequences
from headway.testing.ports import Completion, Look, Looked, Offer
from tests.commands import app


class Office:
    """Sequences somewhere, and commands on them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._tokens = 0

    def hold(
        self,
        key: str,
        *positions: int,
        step: int = 1,
        family: str = "uptime",
        payload: bytes = b'{"status":"success"}',
    ) -> None:
        """Apply the first of the positions, and offer the others."""

        async def offer() -> None:
            sequences = open_sequences(self.url, family=family)
            try:
                for position in positions:
                    self._tokens += 1
                    token = f"token-{self._tokens}"
                    given = Offer(key, position, payload, token, step)
                    (answer,) = await sequences.offer([given])
                    if answer.outcome == "process":
                        await sequences.complete([Completion(key, position, token)])
            finally:
                await sequences.close()

        asyncio.run(offer())

    def look(self, key: str) -> Looked:
        async def look() -> Looked:
            sequences = open_sequences(self.url, family="uptime")
            try:
                return (await sequences.look([Look(key, "looker")]))[0]
            finally:
                await sequences.close()

        return asyncio.run(look())

    def __call__(self, *words: str) -> Result:
        named = [] if "--name" in words else ["--name", "uptime"]
        return CliRunner().invoke(app, ["order", *words, *named, "--sequences", self.url])

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)
