"""WordLlama: vectors of words, trained beforehand; they and their tokenizer come with its package.

Of the package only two files are used. Its own code would ask a server for the tokenizer that lies
beside it, and set up the logging of the whole process when it is imported.
"""

import importlib.util
import threading
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from headway import ConfigurationError
from headway.settings import cure
from headway.systems.consensus.failures import ModelMissingError
from headway.systems.consensus.models.embedder import Vector

MODEL = "l2_supercat_256"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS = f"weights/{MODEL}.safetensors"

_LOADING = threading.Lock()


class WordLlamaTokenizer:
    """Counts tokens as WordLlama's model does."""

    name = "wordllama"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in token_ids(texts)]


class WordLlama:
    """Gives the mean of the vectors of a text's tokens: quick, offline, and blind to their order.

    The weights (16 MB) are loaded with the first text, once in a process.
    """

    backend = "wordllama"
    model = MODEL

    def __init__(self, model: str = "") -> None:
        if model not in {"", MODEL}:
            raise ConfigurationError(
                f"CONSENSUS_EMBEDDING_MODEL={model!r} is not accepted for wordllama: the one that "
                f"comes with the package is {MODEL!r}, so leave it out; or use "
                "CONSENSUS_EMBEDDING_BACKEND=openai"
            )

    def embed(self, texts: Sequence[str], subjects: Sequence[str] = ()) -> list[Vector]:
        means = self._means(texts)
        if subjects:
            # Each counts half: in one text, a long one would drown its subject, and the subject
            # would make all short answers the same.
            pairs = zip(means, self._means(subjects), strict=True)
            means = [_of_length_one(text + subject) for text, subject in pairs]
        return [array("f", mean.tobytes()) for mean in means]

    def _means(self, texts: Sequence[str]) -> list[Any]:
        weights = _loaded(_weights)
        return [
            _of_length_one(weights[ids].sum(axis=0, dtype="float32")) for ids in token_ids(texts)
        ]


def token_ids(texts: Sequence[str]) -> list[list[int]]:
    """Give the tokens of each text."""
    tokenizer = _loaded(_tokenizer)
    # One by one: a batch would start a thread for each core, in every worker.
    return [tokenizer.encode(_sendable(text), add_special_tokens=False).ids for text in texts]


def _of_length_one(total: Any) -> Any:
    # A text without tokens, or with ones that cancel each other, is near to nothing.
    return total / (float(total @ total) ** 0.5 or 1.0)


def _sendable(text: str) -> str:
    """Replace halves of character pairs, which broken mail has in it and nobody can encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _loaded(load: Any) -> Any:
    with _LOADING:  # two threads that begin together load it once
        try:
            return load()
        except ModuleNotFoundError as missing:
            raise ModelMissingError(
                f"CONSENSUS_EMBEDDING_BACKEND=wordllama needs {missing.name}: "
                + cure("consensus")
                + ", or name a service by CONSENSUS_EMBEDDING_BACKEND=openai"
            ) from missing


@cache
def _tokenizer() -> Any:
    from tokenizers import Tokenizer  # noqa: PLC0415 (an extra)

    return Tokenizer.from_file(str(_file(_TOKENIZER)))


@cache
def _weights() -> Any:
    from safetensors.numpy import load_file  # noqa: PLC0415 (an extra)

    (weights,) = load_file(_file(_WEIGHTS)).values()
    return weights


def _file(name: str) -> Path:
    package = importlib.util.find_spec("wordllama")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("wordllama is not installed", name="wordllama")
    path = Path(package.origin).parent / name
    if not path.exists():
        raise ModelMissingError(
            f"the installed wordllama has no {name}: install wordllama>=0.4, which brings it along"
        )
    return path
