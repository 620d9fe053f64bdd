"""The types that an engine and its conformance suite exchange.

For the author of an engine, and for tests that call one directly.
"""

from headway.core.beginning import Beginning, Begun, How, sweep_operation, sweep_run
from headway.core.document import moment
from headway.core.event import FIRST_GENERATION, DoneKey, decode, encode
from headway.core.letter import Letter
from headway.core.lifecycle import State
from headway.core.sequence_answers import Completion, Look, Looked, Offer, Offered
from headway.core.sequence_state import KeyState, Missed, changes, in_epoch
from headway.core.sweep import GiveUp, Judgement, Leave, Requeue, SweepRule, judge
from headway.core.sweep_figures import SweepFigures
from headway.core.tally import Tally
from headway.core.travel import AttemptRecord, Refusal, Travel, instant
from headway.core.unreadable import UNREADABLE
from headway.core.writes import Add, Document, Increment, InsertNew, Update, Write
from headway.ports.bus import (
    SUSPECT_AFTER,
    Bus,
    Delivery,
    Done,
    HandedBack,
    Later,
    Message,
    Parked,
    Queue,
    Then,
)
from headway.ports.candidates import Candidates, Claim, View
from headway.ports.commit import COMMITTED, Finish, Finisher, Outcome, Unit
from headway.ports.desk import DocumentDesk
from headway.ports.documents import Documents
from headway.ports.engine import Engine, Sweeping
from headway.ports.history import History
from headway.ports.leases import Leases
from headway.ports.letters import FailedQueue, Letters
from headway.ports.places import Balance, BusPlaces, Depths, QueueCount
from headway.ports.records import Decisions, DoneRecord, DoneRecords, Ended
from headway.ports.sequences import SequenceEngine
from headway.ports.unrouted import MALFORMED, OnStep, Unrouted, UnroutedEvent

__all__ = [
    "COMMITTED",
    "FIRST_GENERATION",
    "MALFORMED",
    "SUSPECT_AFTER",
    "UNREADABLE",
    "Add",
    "AttemptRecord",
    "Balance",
    "Beginning",
    "Begun",
    "Bus",
    "BusPlaces",
    "Candidates",
    "Claim",
    "Completion",
    "Decisions",
    "Delivery",
    "Depths",
    "Document",
    "DocumentDesk",
    "Documents",
    "Done",
    "DoneKey",
    "DoneRecord",
    "DoneRecords",
    "Ended",
    "Engine",
    "FailedQueue",
    "Finish",
    "Finisher",
    "GiveUp",
    "HandedBack",
    "History",
    "How",
    "Increment",
    "InsertNew",
    "Judgement",
    "KeyState",
    "Later",
    "Leases",
    "Leave",
    "Letter",
    "Letters",
    "Look",
    "Looked",
    "Message",
    "Missed",
    "Offer",
    "Offered",
    "OnStep",
    "Outcome",
    "Parked",
    "Queue",
    "QueueCount",
    "Refusal",
    "Requeue",
    "SequenceEngine",
    "State",
    "SweepFigures",
    "SweepRule",
    "Sweeping",
    "Tally",
    "Then",
    "Travel",
    "Unit",
    "Unrouted",
    "UnroutedEvent",
    "Update",
    "View",
    "Write",
    "changes",
    "decode",
    "encode",
    "in_epoch",
    "instant",
    "judge",
    "moment",
    "sweep_operation",
    "sweep_run",
]
