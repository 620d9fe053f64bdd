"""A service whose module refuses to be imported while a file is there."""

import os
from pathlib import Path

from headway import ConfigurationError, Event, Service, Work

if (Path(os.environ["SITE"]) / "refuse").exists():
    raise ConfigurationError("Invalid GUARD 'closed'. Use 'open'.")

orders = Service("orders")


@orders.on("OrderPlaced")
async def place(event: Event, work: Work) -> None:
    work.documents("orders").add({"order": event.data["order"]})
