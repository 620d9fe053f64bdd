"""Engines that a URL names, opened as Headway's own processes open them."""

from headway.assembly.sequencing import open_sequences

__all__ = ["open_sequences"]
