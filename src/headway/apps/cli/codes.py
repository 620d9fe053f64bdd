"""What the exit codes mean."""

NOT_AS_PROMISED = 1
CANNOT_GO_ON = 2
"""A setting or an option has to be mended first."""
UNAVAILABLE = 3
"""The bus or the store does not answer: the same command may succeed later."""
OUTPUT_CLOSED = 141
"""The reader of our output is gone, as shells say it: 128 and the number of SIGPIPE."""
INTERRUPTED = 130
"""Ctrl-C, as shells say it: 128 and the number of the signal."""
