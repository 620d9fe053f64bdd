"""Adapters that do nothing."""
