"""The services of the pipeline, made from CONSENSUS_*, for `headway run`.

headway run headway.systems.consensus.pipeline:chunking headway.systems.consensus.pipeline:embedding

Each is made when it is asked for: a stage does not load what only another one needs.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from headway import Service
from headway.settings import environment
from headway.systems.consensus.services.chunking import chunking_service
from headway.systems.consensus.services.embedding import embedding_service
from headway.systems.consensus.services.ingestion import ingestion_service
from headway.systems.consensus.services.orchestrator import orchestrator_service
from headway.systems.consensus.services.parsing import parsing_service
from headway.systems.consensus.services.reporting import reporting_service
from headway.systems.consensus.services.summarization import summarization_service
from headway.systems.consensus.settings import ConsensusSettings

SETTINGS = ConsensusSettings.from_mapping(environment())

ingestion: Service
parsing: Service
chunking: Service
embedding: Service
orchestrator: Service
summarization: Service
reporting: Service
SERVICES: tuple[Service, ...]
"""In the order in which an archive passes them."""

_MAKERS: Mapping[str, Callable[[ConsensusSettings], Service]] = {
    "ingestion": ingestion_service,
    "parsing": parsing_service,
    "chunking": chunking_service,
    "embedding": embedding_service,
    "orchestrator": orchestrator_service,
    "summarization": summarization_service,
    "reporting": reporting_service,
}
__all__ = list(_MAKERS)


@cache
def _made(name: str) -> Service:
    return _MAKERS[name](SETTINGS)


def __getattr__(name: str) -> Any:
    if name == "SERVICES":
        return tuple(_made(each) for each in _MAKERS)
    if name in _MAKERS:
        return _made(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
