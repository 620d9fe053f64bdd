"""One worker process of the demonstration: the services of the pipeline, and what may fail."""

from headway import ConfigurationError, Service
from headway.settings import WorkerSettings, environment
from headway.systems.consensus.demo.faults import Breakable, Leisurely, away_flag
from headway.systems.consensus.models.embedder import open_embedder
from headway.systems.consensus.services.chunking import chunking_service
from headway.systems.consensus.services.embedding import embedding_service
from headway.systems.consensus.services.ingestion import ingestion_service
from headway.systems.consensus.services.orchestrator import orchestrator_service
from headway.systems.consensus.services.parsing import parsing_service
from headway.systems.consensus.services.reporting import reporting_service
from headway.systems.consensus.services.summarization import summarization_service
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.vectors.store import open_vectors
from headway.systems.consensus.worker import refuse, work


def services(settings: ConsensusSettings) -> list[Service]:
    """Make all services; of the one that embeds, what it depends on can be taken away."""
    model = Leisurely(open_embedder(settings))
    vectors = Breakable(open_vectors(settings, model.model), away_flag(settings))
    return [
        ingestion_service(settings),
        parsing_service(settings),
        chunking_service(settings),
        embedding_service(settings, embedder=model, vectors=vectors),
        orchestrator_service(settings),
        summarization_service(settings),
        reporting_service(settings),
    ]


def main() -> None:
    try:
        made = services(ConsensusSettings.from_mapping(environment()))
    except ConfigurationError as error:
        refuse(error)
    else:
        work(made, WorkerSettings(concurrency=4, prefetch=24))


if __name__ == "__main__":
    main()
