"""Names of collections: ours, and those that MongoDB takes."""

from headway.core.errors import ConfigurationError

DONE = "headway_done"
HELD = "headway_held"
"""Parts of what a record holds, where it is too much for one document."""
LEASES = "headway_leases"
TOTALS = "headway_totals"
NOTES = "headway_notes"
OURS = (DONE, HELD, LEASES, TOTALS, NOTES)

_LONGEST = 255
"""Bytes of database, dot and collection."""


def checked(database: str, collection: str) -> str:
    """Give the name of a user's collection, or say what is wrong with it."""
    wrong = {
        "it is empty": not collection,
        "it belongs to Headway": collection in OURS,
        "it holds a $": "$" in collection,
        "it holds a NUL": "\0" in collection,
        "it begins with system.": collection.startswith("system."),
        "it has a dot at an end, or two in a row": (
            ".." in collection or collection.startswith(".") or collection.endswith(".")
        ),
        f"with {database}. before it, it is longer than {_LONGEST} bytes": (
            len(f"{database}.{collection}".encode(errors="replace")) > _LONGEST
        ),
    }
    why = next((why for why, is_so in wrong.items() if is_so), None)
    if why is not None:
        raise ConfigurationError(
            f"collection={collection!r} is not accepted by MongoDB: {why}; use another name"
        )
    return collection
