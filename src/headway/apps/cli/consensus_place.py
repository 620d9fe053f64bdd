"""Where the pipeline of a command is: its settings, its engine, and what it needs."""

import importlib.util
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from headway.assembly.settings import engine_settings, environment
from headway.core.engine_url import SqliteUrl
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.core.showing import shown
from headway.systems.consensus.settings import ConsensusSettings

FILE = "headway.db"
_MODEL = ("wordllama", "tokenizers", "safetensors", "numpy")


@dataclass(frozen=True, slots=True)
class Place:
    """A pipeline: how its services are set, and the URL of its bus."""

    settings: ConsensusSettings
    bus: str
    is_named: bool
    """Somebody said where the bus is; else it is a file in the data folder."""

    @property
    def file(self) -> Path | None:
        """The file that is the bus, if it is one."""
        bus = engine_settings(self.bus).bus
        return Path(bus.path) if isinstance(bus, SqliteUrl) else None


def find_place(data: Path | None, bus: str | None) -> Place:
    """Take what was typed before the settings; without either, all is in one folder."""
    given = environment()
    settings = ConsensusSettings.from_mapping(given, data=data)
    if bus or given.get("HEADWAY_BUS") or given.get("RABBITMQ_HOST"):
        return Place(settings, engine_settings(bus).url, is_named=True)
    return Place(settings, f"sqlite:///{quote(str(settings.data / FILE))}", is_named=False)


def make_folder(folder: Path, named: str) -> None:
    """Make a folder, or refuse one in which nothing can be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # it may be there, and not be ours to write to
            pass
    except FileExistsError:
        why = "it is a file"
    except OSError as error:
        why = (error.strerror or str(error)).lower()
    else:
        return
    raise ConfigurationError(
        f"{named}={shown(str(folder))!r} is not accepted: {why}; name a folder that you may write "
        "to"
    )


def refuse_empty(place: Place) -> None:
    """Refuse to look where nothing was ever ingested, before a file is made there."""
    if place.file is not None and not place.file.exists():
        raise ConfigurationError(
            f"nothing is in {place.settings.data} yet: there is no {place.file}. Begin with "
            f"headway consensus ingest PATH, or name another folder with --data"
        )


def refuse_without_model(settings: ConsensusSettings) -> None:
    """Refuse at once what every worker would refuse later."""
    if settings.embedding_backend != "wordllama":
        return
    for name in _MODEL:
        if importlib.util.find_spec(name) is None:
            raise ConfigurationError(
                f"CONSENSUS_EMBEDDING_BACKEND=wordllama needs {name}: {cure('consensus')}"
            )
