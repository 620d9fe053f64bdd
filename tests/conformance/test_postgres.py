"""The shipped suites, on PostgreSQL as a store beside a bus."""

import pytest

from headway.testing.conformance.locked import LockedConformance
from tests.conformance import suites
from tests.engines.postgres.conftest import database, harness  # noqa: F401 (fixtures)

pytestmark = pytest.mark.server("postgresql")


class TestStore(suites.Store): ...


class TestSweeping(suites.Sweeping, LockedConformance): ...
