"""One run of the mail pipeline in a worker process of its own, and what it took."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from headway import connect
from headway.systems.consensus.mail.fields import base_subject
from headway.systems.consensus.models.embedder import open_embedder
from headway.systems.consensus.pipeline import SERVICES
from headway.systems.consensus.settings import ConsensusSettings

_COMMAND = (sys.executable, "-m", "headway.apps.cli", "run", "headway.systems.consensus.pipeline")
_ALL = 10_000_000
_LOOKS = 200
"""How often a run is looked at, about: looking costs something too."""
_USUAL_RATE = 100
_STOP_SECONDS = 60


@dataclass(frozen=True)
class Run:
    """What a run took."""

    each: float
    """Seconds for each message."""
    embedding: float
    """Share of the time that the model would take alone, for the same chunks."""
    processor: float
    """Share of the time that the worker was on a processor; above 1: on more than one."""
    megabytes: float
    """That the worker had in memory, at most."""


def run_pipeline(folder: Path, archive: Path, messages: int) -> Run:
    """Run one archive to its end, and check that it did come to its end."""
    return asyncio.run(_run(folder, archive, messages))


async def _run(folder: Path, archive: Path, messages: int) -> Run:
    url = f"sqlite:///{folder / 'headway.db'}"
    environment = {**os.environ, "HEADWAY_BUS": url, "CONSENSUS_DATA": str(folder / "data")}
    async with connect(url) as headway:
        await headway.declare(*SERVICES)
        with (folder / "run.log").open("wb") as log:
            worker = subprocess.Popen(_COMMAND, env=environment, stdout=log, stderr=log)
        try:
            while not (await headway.balance()).workers:
                await asyncio.sleep(0.05)
            used = _processor_seconds(worker.pid)
            began = time.perf_counter()
            submitted = {"path": str(archive), "source_name": archive.name}
            await headway.publish("ArchiveSubmitted", submitted)
            while (await headway.balance()).waiting:
                await asyncio.sleep(max(0.05, messages / _USUAL_RATE / _LOOKS))
            took = time.perf_counter() - began
            used = _processor_seconds(worker.pid) - used
            megabytes = _megabytes(worker.pid)
            worker.send_signal(signal.SIGTERM)
            worker.wait(_STOP_SECONDS)
        finally:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
        chunks = await headway.find("chunks", limit=_ALL)
        threads = await headway.find("threads", limit=_ALL)
        processed = await headway.find("messages", {"status": "processed"}, limit=_ALL)
    if len(processed) != messages or not all(each["summary_id"] for each in threads):
        raise RuntimeError(f"{len(processed)} of {messages} messages are processed; see {folder}")
    model = open_embedder(ConsensusSettings())
    model.embed(["loads what it needs"], ["first"])
    began = time.perf_counter()
    for each in chunks:
        model.embed([each["text"]], [base_subject(each["subject"])[0]])
    alone = time.perf_counter() - began
    return Run(
        each=took / messages, embedding=alone / took, processor=used / took, megabytes=megabytes
    )


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024
