"""Uptime: results of checks, taken in their order."""
