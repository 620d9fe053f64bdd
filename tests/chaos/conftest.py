"""Where real workers run, on each of the engines."""

from pathlib import Path

import pytest

from tests.chaos.broker import BrokerSite
from tests.chaos.running import Site


@pytest.fixture(params=["sqlite", pytest.param("rabbitmq", marks=pytest.mark.server("rabbitmq"))])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    if request.param == "sqlite":
        return Site(tmp_path)
    return BrokerSite(tmp_path, broker=request.getfixturevalue("rabbitmq_vhost"))
