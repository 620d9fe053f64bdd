"""The shipped suites by what an engine has: a bus, a store, and what a sweep needs of a store."""

from headway.testing.conformance.bus import BusConformance
from headway.testing.conformance.candidates import CandidatesConformance
from headway.testing.conformance.commit import CommitConformance
from headway.testing.conformance.desk import DeskConformance
from headway.testing.conformance.documents import DocumentsConformance
from headway.testing.conformance.history import HistoryConformance
from headway.testing.conformance.leases import LeasesConformance
from headway.testing.conformance.letters import LettersConformance
from headway.testing.conformance.places import PlacesConformance
from headway.testing.conformance.records import RecordsConformance
from headway.testing.conformance.totals import TotalsConformance
from headway.testing.conformance.unrouted import UnroutedConformance


class Bus(BusConformance, UnroutedConformance): ...


class Store(
    CommitConformance,
    DocumentsConformance,
    LettersConformance,
    PlacesConformance,
    RecordsConformance,
): ...


class Sweeping(
    CandidatesConformance,
    DeskConformance,
    HistoryConformance,
    LeasesConformance,
    TotalsConformance,
): ...
