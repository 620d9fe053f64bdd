"""A service that reads its documents from a member of the replica set which lags behind."""

import os
from typing import Any

from pymongo import AsyncMongoClient

from headway import DocumentNotFoundError, Event, Service, Work

lagging = Service("lagging")
_clients: list[AsyncMongoClient[dict[str, Any]]] = []


@lagging.on("PageCame", dedup="page")
async def read_page(event: Event, work: Work) -> None:
    if not _clients:
        _clients.append(AsyncMongoClient(os.environ["LAGGARD"]))
    pages = _clients[0].get_default_database()["pages"]
    wanted = [event.data["page"], f"{event.data['page']}-verso"]
    found = {each["_id"] async for each in pages.find({"_id": {"$in": wanted}})}
    missing = [each for each in wanted if each not in found]
    if missing:
        raise DocumentNotFoundError("pages", missing)
    work.documents("read").add({"page": event.data["page"]})
