"""One service in two versions, each of which reads what the other does not."""

import os
from datetime import timedelta

import msgspec

from headway import Event, Service, Work

GRACE = timedelta(seconds=float(os.environ.get("GRACE", "600")))


class One(msgspec.Struct):
    """What version 1 reads."""

    order: str


class Two(msgspec.Struct):
    """What version 2 reads."""

    order: int


def orders(version: str, data: type) -> Service:
    service = Service("orders", version=version, version_grace=GRACE)

    @service.on("OrderPlaced", data=data)
    async def place(event: Event, work: Work) -> None:
        work.documents("placed").add({"order": event.data.order, "version": version})

    return service


first = orders("1", One)
second = orders("2", Two)
