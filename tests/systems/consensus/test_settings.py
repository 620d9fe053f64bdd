"""Settings are read, checked, and never show a secret; every error has its verdict."""

from datetime import timedelta
from pathlib import Path

import pytest

from headway import ConfigurationError
from headway.errors import ConditionLostError
from headway.retrying import Verdict
from headway.systems.consensus.failures import (
    CLASSIFIER,
    ArchiveAwayError,
    ModelAnswerError,
    ModelMissingError,
    NotMailError,
    TooLargeError,
    UnreadableMailError,
    VectorsMismatchError,
)
from headway.systems.consensus.lifecycles import LIFECYCLES
from headway.systems.consensus.services.making import make_service
from headway.systems.consensus.settings import ConsensusSettings


def test_settings_are_read() -> None:
    settings = ConsensusSettings.from_mapping(
        {"CONSENSUS_DATA": "/srv/mail", "CONSENSUS_TOP_K": "7", "CONSENSUS_CHUNK_TOKENS": "128"}
    )
    assert settings.archives == Path("/srv/mail/archives")
    assert (settings.top_k, settings.chunk_tokens) == (7, 128)
    assert ConsensusSettings.from_mapping(settings.in_words()) == settings


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"CHUNK_TOKENS": "100"}, "CHUNK_OVERLAP=64 is not accepted.*use 50 or less"),
        ({"EMBEDDING_BACKEND": "openai"}, "needs CONSENSUS_EMBEDDING_URL"),
        ({"SUMMARY_BACKEND": "gpt"}, "use extractive or openai"),
        ({"VECTORS": "localhost:6333"}, r"VECTORS='\*\*\*' is not accepted: use http"),
        ({"TOPK": "7"}, "did you mean CONSENSUS_TOP_K"),
        (
            {"SUMMARY_URL": "http://bob:pw@models/v1", "SUMMARY_API_KEY": "k"},
            "CONSENSUS_SUMMARY_URL has a user.*leave one out",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        ConsensusSettings.from_mapping({f"CONSENSUS_{name}": word for name, word in given.items()})


def test_secrets_are_not_shown() -> None:
    settings = ConsensusSettings(
        summary_api_key="k-1234",
        embedding_api_key="k-1234",
        vectors_api_key="k-1234",
        vectors="http://user:k-1234@qdrant:6333",
    )
    assert "k-1234" not in f"{settings!r} {settings.in_force()}"
    assert settings.in_words()["CONSENSUS_SUMMARY_API_KEY"] == "k-1234"


@pytest.mark.parametrize("name", ["embedding_api_key", "vectors_api_key", "summary_api_key"])
@pytest.mark.parametrize("key", ["sk-SECRET\n", "sk-SECRET\0", "sk-SECRET ä", " sk-SECRET"])
def test_a_key_that_no_header_may_hold_is_refused_and_not_shown(name: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"CONSENSUS_{name.upper()} is not") as caught:
        ConsensusSettings(**{name: key})  # type: ignore[arg-type]
    assert "SECRET" not in str(caught.value)


def test_all_waits_are_scaled_and_only_then() -> None:
    assert ConsensusSettings().retry() is None  # RETRY_* of the worker
    scaled = ConsensusSettings.from_mapping(
        {"CONSENSUS_TIME_SCALE": "0.1", "RETRY_BASE_DELAY_MS": "500"}
    )
    service = make_service("x", scaled, failed_queue="x.failed")
    assert service.retry is not None
    assert service.retry.base_delay == timedelta(milliseconds=50)
    assert service.transient.backoff.delay(1, 0.5) == timedelta(milliseconds=500)
    assert service.outage.probe_every == timedelta(milliseconds=100)
    assert service.lifecycle("chunks").flag == "embedding_generated"
    assert {each.lease for each in LIFECYCLES} == {timedelta(minutes=1)}


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (NotMailError("x"), Verdict.PERMANENT),
        (TooLargeError("x"), Verdict.PERMANENT),
        (UnreadableMailError("x"), Verdict.PERMANENT),
        (FileNotFoundError("x"), Verdict.PERMANENT),
        (PermissionError("x"), Verdict.PERMANENT),
        (ModelMissingError("x"), Verdict.PERMANENT),
        (VectorsMismatchError("x"), Verdict.PERMANENT),
        (ArchiveAwayError("x"), Verdict.NOT_YET),
        (ConditionLostError("threads", "t", "slices", [], ["s"]), Verdict.NOT_YET),
        (ModelAnswerError("x"), Verdict.TRANSIENT),
        (OSError(28, "No space left on device"), Verdict.TRANSIENT),
        (ConnectionRefusedError("x"), Verdict.TRANSIENT),
    ],
)
def test_every_error_has_its_verdict(error: Exception, verdict: Verdict) -> None:
    assert CLASSIFIER.classify(error).verdict is verdict
