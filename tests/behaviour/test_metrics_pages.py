"""The pages beside /metrics."""

from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry

from headway.adapters.prometheus.places import PlacesCollector
from headway.assembly.metrics_server import served
from headway.operations import Depths
from headway.testing.clock import VirtualClock
from headway.testing.servers.loopback import HOST, http_request


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/metrics", HTTPStatus.OK),
        ("/metrics/", HTTPStatus.OK),
        ("/metrics?name[]=failed_letters", HTTPStatus.OK),
        ("/health", HTTPStatus.OK),
        ("/", HTTPStatus.NOT_FOUND),
        ("/nosuch", HTTPStatus.NOT_FOUND),
    ],
)
def test_a_page_that_is_not_there_is_not_found(path: str, status: HTTPStatus) -> None:
    registry = CollectorRegistry()
    places = PlacesCollector(lambda: Depths(queues=[], failed={"a": 1}), VirtualClock())
    with served(registry, places, lambda: (HTTPStatus.OK, {}), host=HOST, port=0) as port:
        answered, said = http_request("GET", port, path)
    assert answered == status
    assert (b"failed_letters" in said) is path.startswith("/metrics")
