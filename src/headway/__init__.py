"""Recoverability for event-driven Python."""
