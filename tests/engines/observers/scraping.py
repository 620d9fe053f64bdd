"""Ask for metrics as Prometheus does."""

import asyncio
from http import HTTPStatus

from headway.assembly.metrics_server import metrics_server
from headway.testing.ports import Engine
from headway.testing.servers.loopback import HOST, http_request


async def scraped(engine: Engine, *, up: bool = True) -> str:
    """Give what /metrics of a worker says."""
    with metrics_server(engine, asyncio.get_running_loop(), host=HOST, port=0) as port:
        status, said = await asyncio.to_thread(http_request, "GET", port, "/metrics")
    assert status == HTTPStatus.OK
    assert f"headway_engine_up {float(up)}" in said.decode()
    return said.decode()
