"""Results in their order: the resequencer, its settings and its answers."""

from typing import TYPE_CHECKING

from headway.core.lazy import lazily
from headway.core.sequence_answers import Turn
from headway.core.sequence_fates import Disposition, Result
from headway.core.sequence_settings import OnGap, OnLate, SequenceSettings
from headway.core.sequence_state import Gap, Why
from headway.ports.resequencing import LookScheduler, SequenceWatcher
from headway.ports.sequences import SequenceEngine

if TYPE_CHECKING:
    from headway.assembly.resequencing import BlockingResequencer, LoopThread
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

_HOME = {
    "BatchResequencer": "runtime.resequencer",
    "BlockingResequencer": "assembly.resequencing",
    "LoopThread": "assembly.resequencing",
    "Progress": "runtime.resequencer",
}

if not TYPE_CHECKING:  # a checker that read this would accept any name
    __getattr__ = lazily(__name__, _HOME)
