"""An engine: the ports that belong together."""

from dataclasses import dataclass

from headway.ports.bus import Bus
from headway.ports.commit import Finisher
from headway.ports.documents import Documents
from headway.ports.letters import Letters
from headway.ports.places import Places
from headway.ports.records import DoneRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a worker runs on. Where one adapter gives all of it, one commit holds all of it."""

    bus: Bus
    finisher: Finisher
    letters: Letters
    records: DoneRecords
    documents: Documents
    places: Places
