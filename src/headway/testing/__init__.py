"""Test a service, an engine or a whole system.

`Trial` runs services on a virtual clock. `headway.testing.servers` starts real servers and leaves
nothing behind. `headway.testing.proxy` breaks a connection to one of them at a chosen moment.
`headway.testing.conformance` has one suite for each port; `headway.testing.ports` has the types
that an engine and its suite exchange.
"""

from headway.testing.clock import VirtualClock
from headway.testing.facts import Recorder
from headway.testing.trial import Trial

__all__ = ["Recorder", "Trial", "VirtualClock"]
