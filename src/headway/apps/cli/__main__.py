"""`python -m headway.apps.cli`, for where no script is on the path."""

from headway.apps.cli import main

main()
