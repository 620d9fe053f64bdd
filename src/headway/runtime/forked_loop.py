"""The event loop of a worker, in a child that a handler has forked."""

import asyncio
import selectors
from collections.abc import Iterator, Mapping

from headway.ports import fork


class ForkedLoop:
    """Ends a child that goes on with the event loop of its parent."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        fork.own(self)

    def in_child(self) -> None:
        # asyncio has no name for these. Without them a child could still not commit anything, but
        # it would run what was ready in its parent.
        fork.close_in_child(self._descriptors())
        ready = getattr(self._loop, "_ready", None)
        if ready is not None:
            end = asyncio.Handle(fork.end_child, (), self._loop)
            count = max(len(ready), 1)
            ready.clear()
            ready.extend([end] * count)
        if hasattr(self._loop, "_selector"):
            self._loop._selector = _Ended()  # noqa: SLF001

    def _descriptors(self) -> Iterator[int]:
        selector = getattr(self._loop, "_selector", None)
        if selector is not None and hasattr(
            selector, "fileno"
        ):  # of the system's own kind, as epoll and kqueue
            yield selector.fileno()
        for name in ("_ssock", "_csock"):
            socket = getattr(self._loop, name, None)
            if socket is not None:
                yield socket.fileno()
        transports: Mapping[int, object] = getattr(self._loop, "_transports", {})
        yield from list(transports)


class _Ended(selectors.BaseSelector):
    """Is asked for the next thing to do, and there is none."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # noqa: ARG002
        fork.end_child()

    def register(self, *_args: object) -> selectors.SelectorKey:
        fork.end_child()

    def unregister(self, _file: object) -> selectors.SelectorKey:
        fork.end_child()

    def get_map(self) -> Mapping[object, selectors.SelectorKey]:  # type: ignore[override]
        return {}
