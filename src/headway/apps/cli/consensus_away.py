"""What a search needs and does not get: who does not answer, and what to look at."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from headway.apps.cli.refusals import UnavailableError
from headway.core.errors import ConfigurationError
from headway.core.secrets import hidden, shown_url
from headway.core.showing import shown
from headway.systems.consensus.failures import ConsensusError
from headway.systems.consensus.settings import ConsensusSettings


@contextmanager
def said_in_one_line_of(settings: ConsensusSettings) -> Iterator[None]:
    """Refuse to go on where a model or a store is away, or does not fit; the rest is raised.

    Raises:
        UnavailableError: One of them does not answer.
        ConfigurationError: Whatever else they raise.
    """
    has_servers = settings.embedding_backend == "openai" or bool(settings.vectors)
    try:
        with _of_servers(settings) if has_servers else nullcontext():
            yield
    except ConsensusError as error:
        raise ConfigurationError(str(error)) from None


@contextmanager
def _of_servers(settings: ConsensusSettings) -> Iterator[None]:
    import httpx  # noqa: PLC0415 (only those who ask servers need it)

    try:
        yield
    except httpx.TransportError as error:  # of the model: the store's are told with its address
        raise UnavailableError(
            f"{shown_url(settings.embedding_url)} does not answer: "
            f"{shown(hidden(str(error)))}; see that it runs, or mend CONSENSUS_EMBEDDING_URL"
        ) from None
    except ConnectionError as error:
        raise UnavailableError(
            f"{shown(hidden(str(error)))}; see that it runs, or mend CONSENSUS_VECTORS"
        ) from None
    except httpx.HTTPError as error:
        raise ConfigurationError(
            f"{shown(hidden(str(error)))}; see that it runs and knows you, or mend "
            "CONSENSUS_VECTORS, CONSENSUS_EMBEDDING_URL and their keys"
        ) from None
