"""The machine's own clock and dice."""
