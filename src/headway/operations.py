"""An operator's work: dead letters, stuck documents, held results, and the books."""

from headway.core.decision import Decision
from headway.core.letter import Letter
from headway.ports.letters import FailedQueue
from headway.ports.places import Balance, Depths, QueueCount
from headway.runtime.case import Abandoned, Delayed
from headway.runtime.documents import StoredDocuments
from headway.runtime.documents_choosing import Choice
from headway.runtime.documents_report import DocumentsReport
from headway.runtime.failed import FailedQueues
from headway.runtime.failed_report import Report, Skipped
from headway.runtime.order import ResultOrder
from headway.runtime.overview import verify
from headway.runtime.unrouted import UnroutedEvents

__all__ = [
    "Abandoned",
    "Balance",
    "Choice",
    "Decision",
    "Delayed",
    "Depths",
    "DocumentsReport",
    "FailedQueue",
    "FailedQueues",
    "Letter",
    "QueueCount",
    "Report",
    "ResultOrder",
    "Skipped",
    "StoredDocuments",
    "UnroutedEvents",
    "verify",
]
