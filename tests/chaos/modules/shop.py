"""A small service for the tests of the command line."""

import asyncio
import os
from pathlib import Path

from headway import BlockingWork, Event, Service, Work

SITE = Path(os.environ["SITE"])

orders = Service("orders")
mailer = Service("mailer")


@orders.on("OrderPlaced", failed="OrderFailed")
async def place(event: Event, work: Work) -> None:
    match event.data.get("kind"):
        case "bad":
            raise ValueError("bad order")
        case "slow":
            (SITE / "slow-began").touch()
            await asyncio.sleep(event.data["seconds"])
        case "times out":
            raise TimeoutError("no answer")
        case "waits":
            await work.documents("customers").require(event.data["customer"])
    work.documents("orders").add({"order": event.data.get("order")})
    work.publish("OrderConfirmed", {"order": event.data.get("order")})


@mailer.on("OrderConfirmed")
def send(event: Event, work: BlockingWork) -> None:
    work.documents("mails").add({"order": event.data["order"]})
