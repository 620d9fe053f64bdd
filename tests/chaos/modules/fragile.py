"""A service that one kind of event takes down, without a word."""

import os

from headway import Event, Service, Work

fragile = Service("fragile")


@fragile.on("Parcel")
async def handle(event: Event, work: Work) -> None:
    if event.data["kind"] == "bomb":
        os._exit(7)
    work.documents("parcels").add({"number": event.data["number"]})
