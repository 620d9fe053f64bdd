"""The pages beside /metrics."""

import asyncio
from http import HTTPStatus

from headway.assembly.metrics_server import metrics_server
from headway.testing import Trial
from headway.testing.servers.loopback import HOST, http_request


async def test_a_page_that_is_not_there_is_not_found() -> None:
    loop = asyncio.get_running_loop()
    with metrics_server(Trial().engine, loop, host=HOST, port=0) as port:
        for path in ("/metrics", "/metrics/", "/metrics?name[]=headway_engine_up", "/health"):
            status, said = await asyncio.to_thread(http_request, "GET", port, path)
            assert status != HTTPStatus.NOT_FOUND
            assert (b"headway_engine_up" in said) is path.startswith("/metrics")
        for path in ("/", "/nosuch"):
            status, _ = await asyncio.to_thread(http_request, "GET", port, path)
            assert status == HTTPStatus.NOT_FOUND
