"""What to install where a package is missing. Headway is on no index: pip needs its folder."""


def cure(extra: str) -> str:
    """Say how to install an extra.

    >>> cure("cli")
    "pip install '/path/to/headway[cli]'"
    """
    return f"pip install '/path/to/headway[{extra}]'"
