"""The settings of the pipeline: CONSENSUS_*."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

from headway import ConfigurationError, RetryConfig, RetryPolicy
from headway.retrying import AddedJitter, Exponential, OutageRule
from headway.settings import Setting, hidden, number, one_of, read, shown_url, whole_number

PREFIX = "CONSENSUS_"
EmbeddingBackend = Literal["wordllama", "openai"]
SummaryBackend = Literal["extractive", "openai"]

PROMPT = (
    "Summarize this discussion from a mailing list in Markdown: what was asked, what was agreed "
    "on, and what is still open. Cite messages by their number in square brackets."
)
_TRANSIENT_WAIT = timedelta(seconds=5)
_TRANSIENT_AT_MOST = timedelta(seconds=60)

SETTINGS = (
    Setting("DATA", "data", Path),
    Setting("CHUNK_TOKENS", "chunk_tokens", whole_number(16, 8192)),
    Setting("CHUNK_OVERLAP", "chunk_overlap", whole_number(0, 4096)),
    Setting(
        "EMBEDDING_BACKEND",
        "embedding_backend",
        one_of({"wordllama": "wordllama", "openai": "openai"}),
    ),
    Setting("EMBEDDING_URL", "embedding_url", str),
    Setting("EMBEDDING_MODEL", "embedding_model", str),
    Setting("EMBEDDING_API_KEY", "embedding_api_key", str),
    Setting("VECTORS", "vectors", str),
    Setting("VECTORS_API_KEY", "vectors_api_key", str),
    Setting(
        "SUMMARY_BACKEND",
        "summary_backend",
        one_of({"extractive": "extractive", "openai": "openai"}),
    ),
    Setting("SUMMARY_URL", "summary_url", str),
    Setting("SUMMARY_MODEL", "summary_model", str),
    Setting("SUMMARY_API_KEY", "summary_api_key", str),
    Setting("TOP_K", "top_k", whole_number(1, 1000)),
    Setting("PROMPT", "prompt", str),
    Setting("TIME_SCALE", "time_scale", number(0.0001, 1000)),
)
_KEYS = ("embedding_api_key", "vectors_api_key", "summary_api_key")
_URLS = ("embedding_url", "vectors", "summary_url")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusSettings:
    """How the services of one pipeline run. It can be sent to other processes."""

    data: Path = Path("consensus-data")
    """Folder for archives, vectors and reports; every service of a pipeline sees the same."""
    chunk_tokens: int = 384
    chunk_overlap: int = 64
    """Tokens that a chunk shares with the one before it."""
    embedding_backend: EmbeddingBackend = "wordllama"
    embedding_url: str = field(default="", repr=False)
    """Base address of an OpenAI-compatible service, for the backend openai."""
    embedding_model: str = ""
    """If not given, the backend's own."""
    embedding_api_key: str = field(default="", repr=False)
    vectors: str = field(default="", repr=False)
    """Address of Qdrant; if not given, vectors are kept in a file in `data`."""
    vectors_api_key: str = field(default="", repr=False)
    summary_backend: SummaryBackend = "extractive"
    summary_url: str = field(default="", repr=False)
    summary_model: str = ""
    summary_api_key: str = field(default="", repr=False)
    top_k: int = 12
    """Chunks that a summary is made of, at most."""
    prompt: str = PROMPT
    time_scale: float = 1.0
    """All waits of retries are multiplied by this: a demonstration need not take minutes."""
    late: RetryConfig = field(default=RetryConfig())
    """RETRY_*, of which the waits are scaled."""

    def __post_init__(self) -> None:
        if self.chunk_overlap * 2 > self.chunk_tokens:
            raise ConfigurationError(
                f"{PREFIX}CHUNK_OVERLAP={self.chunk_overlap} is not accepted: it is more than half "
                f"of {PREFIX}CHUNK_TOKENS={self.chunk_tokens}, so chunks would hardly move on; use "
                f"{self.chunk_tokens // 2} or less"
            )
        for name in _URLS:
            _refuse_no_url(name, getattr(self, name))
        for name in _KEYS:
            _refuse_no_key(name, getattr(self, name))
        _refuse_two_keys("EMBEDDING", self.embedding_url, self.embedding_api_key)
        _refuse_two_keys("SUMMARY", self.summary_url, self.summary_api_key)
        _refuse_half_a_backend("EMBEDDING", self.embedding_backend, self.embedding_url)
        _refuse_half_a_backend("SUMMARY", self.summary_backend, self.summary_url)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str], **given: Any) -> Self:
        """Read CONSENSUS_*; what is given goes before. A value that cannot be used is refused."""
        known = {name: value for name, value in given.items() if value is not None}
        own = read(SETTINGS, settings, prefixes=(PREFIX,))
        return cls(**{"late": RetryConfig.from_mapping(settings), **own, **known})

    @property
    def archives(self) -> Path:
        """Where archives are kept, each under its id."""
        return self.data / "archives"

    @property
    def reports(self) -> Path:
        return self.data / "reports"

    @property
    def vectors_file(self) -> Path:
        """The file of vectors, where no Qdrant is named."""
        return self.data / "vectors.db"

    def retry(self) -> RetryConfig | None:
        """Give the schedule for documents that are late; None leaves it to RETRY_*."""
        if self.time_scale == 1:
            return None
        return replace(
            self.late,
            base_delay=self.late.base_delay * self.time_scale,
            max_delay=self.late.max_delay * self.time_scale,
        )

    def transient(self) -> RetryPolicy:
        """Give the schedule for faults: three tries, 5 and 10 seconds apart."""
        return RetryPolicy(
            max_attempts=3,
            backoff=Exponential(
                base=_TRANSIENT_WAIT * self.time_scale,
                cap=_TRANSIENT_AT_MOST * self.time_scale,
                jitter=AddedJitter(timedelta()),
            ),
            ttl=timedelta(minutes=30),
        )

    def outage(self) -> OutageRule:
        """Give when a dependency counts as down, and how often it is probed then."""
        usual = OutageRule()
        return replace(
            usual,
            probe_every=usual.probe_every * self.time_scale,
            probe_at_most=usual.probe_at_most * self.time_scale,
        )

    def in_words(self) -> dict[str, str]:
        """Give every setting that is set under its outward name, secrets included."""
        values = {each.name: getattr(self, each.field) for each in SETTINGS}
        return {PREFIX + name: str(value) for name, value in values.items() if value != ""}

    def in_force(self) -> dict[str, str]:
        """Give every setting that is set under its outward name, without secrets."""
        keys = {PREFIX + each.name for each in SETTINGS if each.field in _KEYS}
        urls = {PREFIX + each.name for each in SETTINGS if each.field in _URLS}
        return {
            name: "***" if name in keys else shown_url(word) if name in urls else hidden(word)
            for name, word in self.in_words().items()
        }


def _refuse_no_url(name: str, url: str) -> None:
    if url and not url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"{PREFIX}{name.upper()}={shown_url(url)!r} is not accepted: use http://HOST:PORT or "
            "https://HOST"
        )


def _refuse_no_key(name: str, key: str) -> None:
    # Refused here, for the error of the client that is given it would show it.
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigurationError(
            f"{PREFIX}{name.upper()} is not accepted: a key has no spaces, no line breaks, and no "
            "characters beyond ASCII; is there one too many at its end?"
        )


def _refuse_two_keys(what: str, url: str, key: str) -> None:
    if key and "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigurationError(
            f"{PREFIX}{what}_URL has a user in it, and {PREFIX}{what}_API_KEY is set: only one of "
            "them can be sent, so leave one out"
        )


def _refuse_half_a_backend(what: str, backend: str, url: str) -> None:
    if backend == "openai" and not url:
        raise ConfigurationError(
            f"{PREFIX}{what}_BACKEND=openai needs {PREFIX}{what}_URL, such as "
            "http://localhost:11434/v1"
        )
