"""Engines that a URL names, opened as Headway's own processes open them."""

from headway.adapters.sqlite.tables import Tables
from headway.assembly.connection import Connection
from headway.assembly.sequencing import open_sequences

__all__ = ["Connection", "Tables", "open_sequences"]
