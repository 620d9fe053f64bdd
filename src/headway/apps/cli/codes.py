"""What the exit codes mean."""

NOT_AS_PROMISED = 1
CANNOT_GO_ON = 2
"""A setting or an option has to be mended first."""
UNAVAILABLE = 3
"""The bus or the store does not answer: the same command may succeed later."""
INTERRUPTED = 130
"""Ctrl-C, as shells say it: 128 and the number of the signal."""
