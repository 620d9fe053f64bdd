"""Suggest the name that a person meant."""

from collections.abc import Iterable
from difflib import get_close_matches

_NAMED = 10


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Give the known name that is closest to a misspelt one, or None.

    >>> nearest("ordrs", ["orders", "mails"])
    'orders'
    """
    found = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def suggestion(name: str, known: Iterable[str], *, before: str = "") -> str:
    """Ask whether the closest name was meant, or else list the known ones.

    >>> suggestion("ordrs", ["orders", "mails"])
    'did you mean orders?'
    >>> suggestion("x", ["orders", "mails"], before="SHOP_")
    'there are: SHOP_orders, SHOP_mails'
    """
    names = list(known)
    near = nearest(name, names)
    if near is not None:
        return f"did you mean {before}{near}?"
    more = ", ..." if len(names) > _NAMED else ""
    return "there are: " + ", ".join(before + each for each in names[:_NAMED]) + more
