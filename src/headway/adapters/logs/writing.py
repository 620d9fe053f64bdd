"""Where log lines go: to the standard error, without what libraries say of themselves."""

import logging

_QUIET = {
    # Of lost connections it writes tracebacks; Headway says each in one line.
    "pika": logging.CRITICAL,
    # One line for each request, with its whole address, which may hold a key.
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
}


def write_lines(formatter: logging.Formatter) -> None:
    """Write all lines from INFO on in this shape, and no others."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)
