"""A file of SQLite, and the engines that were opened on it."""

from tests.conformance.test_sqlite import harness  # noqa: F401 (a fixture)
