"""The command, as every test of it starts it inside its own process."""

from headway.apps.cli.commands import app

__all__ = ["app"]
