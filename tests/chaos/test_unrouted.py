"""Services that start one after the other: what the first published waits for the second."""

import json
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.broker import BrokerSite
from tests.chaos.running import Site

ORDERS = 200


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def unrouted(site: Site) -> dict[str, int]:
    found = json.loads(site.headway("unrouted", "list", "--json").stdout)
    return {each["event_type"]: each["events"] for each in found}


async def test_orders_wait_for_services_that_start_later_through_every_kill(site: Site) -> None:
    await site.publish("OrderPlaced", [{"order": number} for number in range(ORDERS)])
    assert unrouted(site) == {"OrderPlaced": ORDERS}
    for done in (ORDERS // 4, ORDERS // 2, ORDERS):
        with site.started("shop:orders") as process:
            site.wait(lambda: len(site.documents("orders")) >= done, "orders are placed")  # noqa: B023
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert unrouted(site) == {"OrderConfirmed": ORDERS}
    warned = re.findall(r"No service takes OrderConfirmed, which orders publishes", site.log())
    assert 1 <= len(warned) <= 3
    for done in (ORDERS // 2, ORDERS):
        with site.started("shop:mailer") as process:
            site.wait(lambda: len(site.documents("mails")) >= done, "mails are sent")  # noqa: B023
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert unrouted(site) == {}
    for collection in ("orders", "mails"):
        sent = Counter(int(str(each["order"])) for each in site.documents(collection))
        assert sent == dict.fromkeys(range(ORDERS), 1)
    verified = json.loads(site.headway("verify", "--json").stdout)
    assert (verified["verdict"], verified["places"]["unrouted"]) == ("ok", 0)


@pytest.mark.timeout(300)
async def test_orders_wait_on_a_broker_for_services_that_start_later_through_every_kill(
    tmp_path: Path, rabbitmq_vhost: str
) -> None:
    site = BrokerSite(tmp_path, broker=rabbitmq_vhost)
    await site.publish("OrderPlaced", [{"order": number} for number in range(ORDERS)])
    assert unrouted(site) == {"OrderPlaced": ORDERS}
    steps = [
        ("orders", {"OrderConfirmed": ORDERS}),
        ("mailer", dict[str, int]()),
    ]
    for service, then in steps:
        collection = "orders" if service == "orders" else "mails"
        for done in (ORDERS // 4, ORDERS // 2):
            ended = done + (0 if service == "orders" else ORDERS)
            with site.started(f"shop:{service}") as process:
                site.wait(lambda: site.ended() >= ended, "some are done", 150)  # noqa: B023
                process.send_signal(signal.SIGKILL)
                process.wait()
        with site.running(f"shop:{service}"):
            site.wait(lambda: len(site.documents(collection)) == ORDERS, "all are done", 150)  # noqa: B023
            # What the killed workers committed and did not send follows their events.
            site.wait(lambda: unrouted(site) == then, f"{then} wait", 150)  # noqa: B023
    for collection in ("orders", "mails"):
        sent = Counter(int(str(each["order"])) for each in site.documents(collection))
        assert sent == dict.fromkeys(range(ORDERS), 1)
    assert json.loads(site.headway("verify", "--json").stdout)["places"]["unrouted"] == 0
