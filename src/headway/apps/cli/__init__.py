"""The command `headway`."""

import sys

from headway.apps.cli.stopping import nothing_begun
from headway.core.extras import cure


def main() -> None:
    """Run the command line, or say what is missing for it."""
    try:
        with nothing_begun():
            from headway.apps.cli.commands import run  # noqa: PLC0415 (packages may be missing)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("headway"):
            raise
        sys.exit(f"headway: the command needs {missing.name}: {cure('cli')}")
    run()
