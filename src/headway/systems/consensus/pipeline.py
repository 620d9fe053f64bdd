"""The services of the pipeline, made from CONSENSUS_*, for `headway run`.

headway run headway.systems.consensus.pipeline:chunking headway.systems.consensus.pipeline:embedding
"""

from headway.assembly.settings import environment
from headway.systems.consensus.services.chunking import chunking_service
from headway.systems.consensus.services.embedding import embedding_service
from headway.systems.consensus.services.ingestion import ingestion_service
from headway.systems.consensus.services.orchestrator import orchestrator_service
from headway.systems.consensus.services.parsing import parsing_service
from headway.systems.consensus.services.reporting import reporting_service
from headway.systems.consensus.services.summarization import summarization_service
from headway.systems.consensus.settings import ConsensusSettings

SETTINGS = ConsensusSettings.from_mapping(environment())

ingestion = ingestion_service(SETTINGS)
parsing = parsing_service(SETTINGS)
chunking = chunking_service(SETTINGS)
embedding = embedding_service(SETTINGS)
orchestrator = orchestrator_service(SETTINGS)
summarization = summarization_service(SETTINGS)
reporting = reporting_service(SETTINGS)

SERVICES = (ingestion, parsing, chunking, embedding, orchestrator, summarization, reporting)
"""In the order in which an archive passes them."""
