"""Real worker processes on a real broker, with a store beside it."""

import contextlib
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway import Event
from headway.clock import CHANCE, CLOCK
from headway.testing.engines import message_of
from headway.testing.ports import encode
from tests.chaos.running import Site

Publish = Callable[[str, Sequence[tuple[str, object]]], Awaitable[None]]


@dataclass(frozen=True)
class BrokerSite(Site):
    """Queues at a broker; documents and done-records in a file of the folder."""

    broker: str = ""

    @property
    def url(self) -> str:
        return self.broker

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "HEADWAY_STORE": f"sqlite:///{self.database}"}

    async def publish_named(self, event_type: str, events: Sequence[tuple[str, object]]) -> None:
        """Publish events under ids of the test's own, as often as it takes."""
        async with self.publishing() as publish:
            await publish(event_type, events)

    @contextlib.asynccontextmanager
    async def publishing(self) -> AsyncIterator[Publish]:
        """Publish more than once over one connection."""
        from headway.adapters.rabbitmq.engine import rabbitmq_parts  # noqa: PLC0415
        from headway.errors import NotPublishedError  # noqa: PLC0415

        parts = rabbitmq_parts(self.url, CLOCK, CHANCE)

        async def publish(event_type: str, events: Sequence[tuple[str, object]]) -> None:
            left = [
                message_of(encode(Event(event_type, name, data=data)), event_type, name)
                for name, data in events
            ]
            while left:
                # A broker with much to read back is away for longer than publishing waits.
                with contextlib.suppress(NotPublishedError):
                    await parts.bus.publish(left[:500])
                    del left[:500]

        try:
            yield publish
        finally:
            await parts.bus.close()


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that a process has started and that are alive."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []
