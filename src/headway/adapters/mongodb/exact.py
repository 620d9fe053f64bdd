"""Change documents that are as they were read: looked at and changed in one transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.adapters.mongodb.changing import differs
from headway.adapters.mongodb.values import Raw, view
from headway.core.writes import ID, Document


def unchanged(
    documents: Sequence[Document], found: Mapping[str, Raw], fields: Sequence[str]
) -> dict[str, Any]:
    """Give those whose fields hold what they held, with their ids as they are in the database."""
    same: dict[str, Any] = {}
    for document in documents:
        one = document[ID]
        if one in found and holds(found[one], document, fields):
            same[one] = found[one][ID]
    return same


def holds(raw: Raw, document: Document, fields: Sequence[str]) -> bool:
    """Say whether fields of a document hold what they held when it was read."""
    now = view({field: raw[field] for field in fields if field in raw})
    return not any(differs(now.get(field), document.get(field)) for field in fields)
