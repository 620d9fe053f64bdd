"""Durations in log lines."""

from datetime import timedelta


def short(duration: timedelta) -> str:
    return f"{duration.total_seconds():.0f}s"
