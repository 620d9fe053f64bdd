"""Results in their order: the resequencer, its settings and its answers."""

from headway.assembly.resequencing import BlockingResequencer, LoopThread
from headway.core.sequence_answers import Turn
from headway.core.sequence_fates import Disposition, Result
from headway.core.sequence_settings import OnGap, OnLate, SequenceSettings
from headway.core.sequence_state import Gap, Why
from headway.ports.resequencing import LookScheduler, SequenceWatcher
from headway.ports.sequences import SequenceEngine
from headway.runtime.resequencer import BatchResequencer, Progress

__all__ = [
    "BatchResequencer",
    "BlockingResequencer",
    "Disposition",
    "Gap",
    "LookScheduler",
    "LoopThread",
    "OnGap",
    "OnLate",
    "Progress",
    "Result",
    "SequenceEngine",
    "SequenceSettings",
    "SequenceWatcher",
    "Turn",
    "Why",
]
