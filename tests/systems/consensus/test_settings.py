"""Settings are read, checked, and never show a secret."""

from pathlib import Path

import pytest

from headway import ConfigurationError
from headway.systems.consensus.settings import ConsensusSettings


def test_settings_are_read_and_secrets_are_not_shown() -> None:
    settings = ConsensusSettings.from_mapping(
        {
            "CONSENSUS_DATA": "/srv/mail",
            "CONSENSUS_TOP_K": "7",
            "CONSENSUS_SUMMARY_API_KEY": "k-1234",
            "CONSENSUS_EMBEDDING_API_KEY": "k-1234",
            "CONSENSUS_VECTORS": "http://user:k-1234@qdrant:6333",
        }
    )
    assert (settings.archives, settings.top_k) == (Path("/srv/mail/archives"), 7)
    assert ConsensusSettings.from_mapping(settings.in_words()) == settings
    assert "k-1234" not in f"{settings!r} {settings.in_force()}"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"CHUNK_TOKENS": "100"}, "CHUNK_OVERLAP"),
        ({"EMBEDDING_BACKEND": "openai"}, "EMBEDDING_URL"),
        ({"SUMMARY_BACKEND": "gpt"}, "SUMMARY_BACKEND"),
        ({"VECTORS": "SECRET@localhost:6333"}, "VECTORS"),
        ({"TOPK": "7"}, "TOP_K"),
        ({"SUMMARY_URL": "http://bob:SECRET@models/v1", "SUMMARY_API_KEY": "k"}, "SUMMARY_URL"),
        ({"SUMMARY_API_KEY": "sk-\nSECRET"}, "SUMMARY_API_KEY"),
        ({"EMBEDDING_API_KEY": "sk-SECRET ä"}, "EMBEDDING_API_KEY"),
        ({"VECTORS_API_KEY": "sk-SECRET\0"}, "VECTORS_API_KEY"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"CONSENSUS_{named}") as refusal:
        ConsensusSettings.from_mapping({f"CONSENSUS_{name}": word for name, word in given.items()})
    assert "SECRET" not in str(refusal.value)
