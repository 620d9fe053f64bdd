"""Handlers that fork, as libraries do that their authors did not think of."""

# ruff: noqa: ASYNC251, ASYNC221, ASYNC222 (what it is about)

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from headway import Event, Service

SITE = Path(os.environ["SITE"])
forks = Service("forks")


def note(name: str, text: object) -> None:
    """Write a file as a whole."""
    part = SITE / f"{name}.part"
    part.write_text(str(text))
    part.rename(SITE / name)


@forks.on("Returned")
async def returned(event: Event, work: Any) -> None:
    child = os.fork()
    if child:
        note("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    work.documents("ran").add({"who": "returned", "pid": os.getpid()})


@forks.on("Raised")
async def raised(event: Event, work: Any) -> None:
    child = os.fork()
    if not child:
        sys.exit(0)  # as a script of old would end its child
    note("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    work.documents("ran").add({"who": "raised", "pid": os.getpid()})


@forks.on("Awaited")
async def awaited(event: Event, work: Any) -> None:
    child = os.fork()
    if not child:
        await asyncio.sleep(0.1)
        note("went-on", os.getpid())
    else:
        note("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    work.documents("ran").add({"who": "awaited", "pid": os.getpid()})


@forks.on("Threaded")
def threaded(event: Event, work: Any) -> None:
    child = os.fork()
    if child:
        note("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    work.documents("ran").add({"who": "threaded", "pid": os.getpid()})


@forks.on("Left")
async def left(event: Event, work: Any) -> None:
    child = os.fork()
    if not child:
        time.sleep(120)
        os._exit(0)
    note("child", child)
    work.documents("ran").add({"who": "left", "pid": os.getpid()})


def answer(pipe: Connection) -> None:
    pipe.send(("answer", os.getpid()))
    pipe.close()


def asked(kind: str) -> bool:
    """Ask a child made by multiprocessing, and end it."""
    context = multiprocessing.get_context(kind)
    ours, its = context.Pipe()
    process = context.Process(target=answer, args=(its,))  # type: ignore[attr-defined]
    process.start()
    its.close()
    word, pid = ours.recv()
    process.join(30)
    return (word, process.exitcode) == ("answer", 0) and pid != os.getpid()


def ended(kind: str) -> bool:
    """End a child by SIGTERM, as multiprocessing does."""
    context = multiprocessing.get_context(kind)
    process = context.Process(target=time.sleep, args=(60,))  # type: ignore[attr-defined]
    process.start()
    process.terminate()
    process.join(10)
    return bool(process.exitcode == -15)


@forks.on("Helped")
async def helped(event: Event, work: Any) -> None:
    said = subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, check=True)
    child = os.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(5)"])  # noqa: S606
    work.documents("ran").add(
        {
            "who": "helped",
            "pid": os.getpid(),
            "subprocess": said.stdout.decode().strip(),
            "exec": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]),
            "fork": asked("fork"),
            "spawn": asked("spawn"),
            "terminated": ended("fork"),
        }
    )


@forks.on("HelpedInThread")
def helped_in_thread(event: Event, work: Any) -> None:
    work.documents("ran").add(
        {
            "who": "helped in a thread",
            "pid": os.getpid(),
            "fork": asked("fork"),
            "spawn": asked("spawn"),
            "terminated": ended("fork"),
        }
    )
