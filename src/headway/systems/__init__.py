"""Whole systems, built on Headway's public names only."""
