"""What makes vectors of texts, and what counts the tokens that it will see."""

from array import array
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from headway.settings import cure
from headway.systems.consensus.failures import ModelMissingError
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.text.tokens import PlainTokenizer, Tokenizer

Vector: TypeAlias = "array[float]"
"""Numbers of four bytes each (`array("f")`): what a model says of a text, with a length of one."""


class Embedder(Protocol):
    """Turns texts into vectors that lie near each other if the texts mean the like.

    It may be asked by several threads at once. What it raises says by its class whether another
    try may help.
    """

    @property
    def backend(self) -> str:
        """Says who does it: `wordllama` or `openai`."""
        ...

    @property
    def model(self) -> str:
        """Names the model; vectors of different models cannot be compared."""
        ...

    def embed(self, texts: Sequence[str], subjects: Sequence[str] = ()) -> list[Vector]:
        """Give one vector for each text, in their order.

        Where subjects are given, one for each text, they count too: an answer rarely repeats what
        it is an answer to.
        """
        ...


def open_embedder(settings: ConsensusSettings) -> Embedder:
    """Choose by CONSENSUS_EMBEDDING_BACKEND; nothing is loaded before the first text."""
    if settings.embedding_backend == "openai":
        try:
            from headway.systems.consensus.models.openai_embeddings import (  # noqa: PLC0415
                OpenAIEmbedder,
            )
        except ModuleNotFoundError as missing:
            raise ModelMissingError(
                f"CONSENSUS_EMBEDDING_BACKEND=openai needs {missing.name}: {cure('consensus')}"
            ) from missing
        return OpenAIEmbedder(
            settings.embedding_url,
            model=settings.embedding_model,
            api_key=settings.embedding_api_key,
        )
    from headway.systems.consensus.models.wordllama import WordLlama  # noqa: PLC0415 (a ring)

    return WordLlama(settings.embedding_model)


def open_tokenizer(settings: ConsensusSettings) -> Tokenizer:
    """Give the tokenizer of the embedder if it has one here, else one that counts plainly."""
    if settings.embedding_backend == "openai":
        return PlainTokenizer()
    from headway.systems.consensus.models.wordllama import (  # noqa: PLC0415 (a ring)
        WordLlamaTokenizer,
    )

    return WordLlamaTokenizer()
