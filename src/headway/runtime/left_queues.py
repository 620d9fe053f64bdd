"""Queues of a service that none of its handlers takes any more: what is in them waits unseen."""

import logging
from collections.abc import Sequence

from headway.core.routing import failed_queue_name, queue_name
from headway.core.showing import described, shown
from headway.ports.places import BusPlaces
from headway.runtime.service import Service
from headway.runtime.unrouted import nearest_type

_LOG = logging.getLogger("headway")


async def warn_of_left_queues(services: Sequence[Service], places: BusPlaces) -> None:
    """Name each queue of these services that holds events and that no handler of them takes."""
    try:
        depths = await places.depths()
    except Exception as error:  # noqa: BLE001 (whatever the engine raises: only the hint is missing)
        _LOG.debug("Could not look for queues without a handler: %s", described(error))
        return
    taken = {queue for service in services for queue, _ in service.subscriptions}
    owners = {each.failed_queue: each.name for each in services}
    for failed in depths.failed:  # there is one for each service that ever ran here
        owners.setdefault(failed, failed.removesuffix(failed_queue_name("")))
    for count in depths.queues:
        names = (each for each in owners.values() if _is_of(each, count.queue))
        of = max(names, key=len, default="")
        service = next((each for each in services if each.name == of), None)
        if service is None or not count.waiting or count.queue in taken:
            continue
        types = [event_type for _, event_type in service.subscriptions]
        meant = nearest_type(count.queue.removeprefix(queue_name(of, "")), types)
        _LOG.warning(
            "Queue %s holds %s, and no handler of %s takes from it. %s Subscribe a handler to "
            "their type again, until the queue is empty at least.",
            shown(count.queue),
            "1 event" if count.waiting == 1 else f"{count.waiting} events",
            shown(of),
            f"Is {shown(meant)} their type, misspelt?" if meant else "Was their type renamed?",
        )


def _is_of(service: str, queue: str) -> bool:
    return queue.startswith(queue_name(service, ""))
