"""`python -m headway.apps.worker ORDER`."""

import sys

import msgspec

from headway.apps.cli.codes import INTERRUPTED
from headway.apps.cli.refusals import said_in_one_line
from headway.apps.worker.order import Order
from headway.apps.worker.working import work
from headway.assembly.settings import given_bus

if __name__ == "__main__":
    with said_in_one_line():
        try:
            order = msgspec.json.decode(sys.argv[1], type=Order)
            work(msgspec.structs.replace(order, bus=given_bus()))
        except KeyboardInterrupt:  # before there was anything that could be stopped
            sys.exit(INTERRUPTED)
