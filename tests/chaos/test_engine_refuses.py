"""Engines that refuse for a while, under load: everything waits, nothing becomes a dead letter.

Real servers and a real worker process. Each engine has its faults one after the other: the password
is rotated, a right is revoked, writes are refused, the disk is full. In the gate each lasts two
seconds, with --chaos a minute.
"""

import asyncio
import contextlib
import json
import os
import resource
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from pymongo import MongoClient

from headway import Event
from headway.testing.engines import message_of, open_engine
from headway.testing.ports import Message, encode
from headway.testing.servers import MongoDB, PostgreSQL, RabbitMQ
from headway.testing.servers.loopback import http_request
from tests.chaos.running import Site
from tests.engines.pairs.postgres_harness import made_ready

SHORT = 2.0
FULL = 60.0
EACH_SECOND = 20
"""Orders, each with two events."""
SAYS_WITHIN = 30.0
RECOVERS_WITHIN = 100.0
IS_ROOT = os.geteuid() == 0

Record = Callable[[str, object], None]
lasting = pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(FULL, id="full", marks=[pytest.mark.chaos, pytest.mark.timeout(1800)]),
    ],
)


@dataclass(frozen=True)
class Fault:
    """What is done to the engine, how it is undone, and what the worker says of it."""

    name: str
    during: Callable[[], AbstractContextManager[None]]
    says: tuple[str, ...]
    restarts: bool = False
    """It starts a server, which only the main thread may."""

    @contextlib.asynccontextmanager
    async def lasting(self) -> AsyncIterator[None]:
        """Begin and end it, while the load goes on if that can be."""
        fault = self.during()
        if self.restarts:
            fault.__enter__()
        else:
            await asyncio.to_thread(fault.__enter__)
        try:
            yield
        finally:
            await asyncio.to_thread(fault.__exit__, None, None, None)


@dataclass(frozen=True)
class PatientSite(Site):
    """The engine of one test."""

    bus: str = ""
    """As the worker knows it."""
    publishes_to: str = ""
    """As the test knows it, which no fault is about."""
    store: str = ""
    disk: Path | None = None
    """Where the file is; not where the log is."""
    launched_by: tuple[str, ...] = ()
    published: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.bus or super().url

    @property
    def database(self) -> Path:
        return super().database if self.disk is None else self.disk / "headway.db"

    @property
    def launcher(self) -> tuple[str, ...]:
        return self.launched_by

    @property
    def environment(self) -> dict[str, str]:
        store = {"HEADWAY_STORE": self.store} if self.store else {}
        return {**super().environment, **store}

    async def placed(self) -> Counter[str]:
        """How often each order was placed."""
        return Counter(str(each["order"]) for each in self.documents("placed"))

    @contextlib.asynccontextmanager
    async def loaded(self) -> AsyncIterator[None]:
        """Publish all the time inside the block, and until all of it was accepted."""
        engine, over = open_engine(self.publishes_to or self.url), asyncio.Event()

        async def publish() -> None:
            number = 0
            while not over.is_set():
                order, payment = f"order-{number}", f"payment-{number}"
                messages = [
                    _message("OrderCame", order, {"order": order}),
                    _message("OrderPaid", payment, {"payment": payment}),
                ]
                while True:
                    try:
                        await engine.bus.publish(messages)
                        break
                    except Exception:  # noqa: BLE001 (until a fault of the bus is over)
                        await asyncio.sleep(0.2)
                self.published.extend((order, payment))
                number += 1
                await asyncio.sleep(1 / EACH_SECOND)

        publishing = asyncio.create_task(publish())
        try:
            yield
        finally:
            over.set()
            await publishing
            await engine.close()

    async def until_said(self, fault: Fault, since: int) -> None:
        """Wait until the worker has said, since so many characters, what it waits for."""
        loop = asyncio.get_running_loop()
        end = loop.time() + SAYS_WITHIN
        while not any(one in self.log()[since:] for one in fault.says):
            if loop.time() > end:
                pytest.fail(f"{fault.name}: nothing was said of it:\n{self.log()[since:][-4000:]}")
            await asyncio.sleep(0.1)

    async def until_placed(self) -> float:
        """Wait until all that is published by now was placed; give the seconds that it took."""
        loop = asyncio.get_running_loop()
        start, wanted = loop.time(), set(self.published)
        while missing := wanted - set(await self.placed()):
            if loop.time() - start > RECOVERS_WITHIN:
                pytest.fail(f"{len(missing)} were not placed; the log ends:\n{self.log()[-4000:]}")
            await asyncio.sleep(0.1)
        return loop.time() - start


def _message(event_type: str, name: str, data: dict[str, str]) -> Message:
    return message_of(encode(Event(event_type, name, data=data)), event_type, name)


async def endure(
    site: PatientSite, faults: Sequence[Fault], seconds: float, record_property: Record
) -> None:
    """Have the worker live through the faults, and see that each order is placed once."""
    shown = []
    with site.running("patient:orders", "--concurrency", "100"):
        await asyncio.to_thread(site.wait, lambda: "Running orders" in site.log(), "it runs")
        async with site.loaded():
            await asyncio.sleep(1)
            await site.until_placed()
            for fault in faults:
                said = len(site.log())
                async with fault.lasting():
                    await asyncio.sleep(seconds)
                    await site.until_said(fault, said)
                    waiting = len(set(site.published) - set(await site.placed()))
                recovered = await site.until_placed()
                shown.append(
                    f"{fault.name} {seconds:g} s: {waiting} waited, done {recovered:.1f} s after"
                )
        await site.until_placed()
    placed = await site.placed()
    assert placed == Counter(site.published), site.log()[-4000:]
    ids = site.folder / "ids"
    ids.write_text("".join(f"{name}\n" for name in site.published))
    verified = site.headway("verify", "--against", str(ids))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    exported = site.headway("failed", "export", "orders.failed", "--output", "-")
    assert (exported.returncode, exported.stdout) == (0, ""), exported.stdout + exported.stderr
    record_property(
        "shown", f"{len(placed)} events, each done once, 0 dead letters, verify 0; {shown}"
    )


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Have a file system of so many bytes in a folder."""
    folder.mkdir(exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={size},mode=0777", "tmpfs"]
    subprocess.run(["/bin/mount", *options, str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no room on the disk of a folder, however often some of it is given back."""
    filler, over = folder / "filler", threading.Event()

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            while not over.is_set():
                try:
                    file.write(bytes(4096))
                except OSError:
                    over.wait(0.05)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        filler.unlink()


# SQLite


@lasting
@pytest.mark.skipif(not IS_ROOT, reason="only root can mount a small disk")
async def test_sqlite(tmp_path: Path, seconds: float, record_property: Record) -> None:
    disk = tmp_path / "disk"
    # Without the right by which root may write what nobody may write.
    launcher = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    site = PatientSite(tmp_path, disk=disk, launched_by=launcher)

    @contextlib.contextmanager
    def read_only() -> Iterator[None]:
        said = len(site.log())
        modes = {each: each.stat().st_mode for each in (*disk.glob("headway.db*"), disk)}
        for each in modes:
            each.chmod(0o555 if each.is_dir() else 0o444)
        try:
            # A file that is open stays writable. An error makes the worker open it anew; what
            # it may still write is its log.
            (pid,) = site.workers()
            largest = (said + 100_000, resource.RLIM_INFINITY)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, largest)
            site.wait(lambda: "disk I/O error" in site.log()[said:], "a write has failed")
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
            yield
        finally:
            for each, mode in modes.items():
                each.chmod(mode)

    @contextlib.contextmanager
    def full() -> Iterator[None]:
        # Or the room of the log would be used again.
        site.wait(lambda: site.query("pragma wal_checkpoint(truncate)")[0][0] == 0, "truncated")
        with filled(disk):
            yield

    faults = [
        Fault("disk full", full, ("database or disk is full",)),
        Fault("read-only", read_only, ("readonly database", "unable to open database")),
    ]
    with small_disk(disk, "128m"):
        await endure(site, faults, seconds, record_property)


# PostgreSQL


PASSWORDS = """
host all app 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
RIGHTS = "select, insert, update, delete on all tables in schema public"
CUT = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'"


@dataclass(frozen=True)
class PostgresSite(PatientSite):
    admin: str = ""

    async def placed(self) -> Counter[str]:
        orders = "select body ->> 'order' from headway_documents where collection = 'placed'"
        with psycopg.connect(self.admin) as connection:
            return Counter(order for (order,) in connection.execute(orders))


def say(url: str, *statements: str) -> str:
    """Have statements carried out; give the first value of the last."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return str(row[0]) if row else ""


def require_passwords(server: PostgreSQL) -> None:
    Path(say(server.url, "show hba_file")).write_text(PASSWORDS)


@lasting
@pytest.mark.skipif(not IS_ROOT, reason="only root can mount a small disk")
async def test_postgresql(
    tmp_path: Path, rabbitmq_vhost: str, seconds: float, record_property: Record
) -> None:
    with PostgreSQL() as server, contextlib.ExitStack() as stack:
        disk = server.folder.path / "disk"
        stack.enter_context(small_disk(disk, "64m"))
        shutil.chown(disk, "postgres", "postgres")
        require_passwords(server)
        say(
            server.url,
            "select pg_reload_conf()",
            "create role app login password 'secret'",
            f"create tablespace small location '{disk}'",
            "create database shop tablespace small",
        )
        admin = server.url.removesuffix("postgres") + "shop"
        await made_ready(admin)
        say(admin, f"grant {RIGHTS} to app")
        store = admin.replace("postgres@", "app:secret@")
        site = PostgresSite(tmp_path, bus=rabbitmq_vhost, store=store, admin=admin)

        @contextlib.contextmanager
        def rotated() -> Iterator[None]:
            say(admin, "alter role app password 'another'", CUT)
            yield
            say(admin, "alter role app password 'secret'")

        @contextlib.contextmanager
        def revoked(rights: str) -> Iterator[None]:
            say(admin, f"revoke {rights} from app")
            yield
            say(admin, f"grant {RIGHTS} to app")

        @contextlib.contextmanager
        def read_only() -> Iterator[None]:
            signal = Path(say(admin, "show data_directory")) / "standby.signal"
            server.stop()
            signal.touch()
            shutil.chown(signal, "postgres", "postgres")
            server.start()
            yield
            say(server.url, "select pg_promote()")

        only_written = "insert, update, delete on headway_done"
        only_begun = "update on headway_documents"
        denied = ("permission denied for table",)
        faults = [
            Fault("password rotated", rotated, ("password authentication failed",)),
            Fault("grant revoked", lambda: revoked(RIGHTS), denied),
            Fault("grant on one table revoked", lambda: revoked(only_written), denied),
            Fault("grant on documents revoked", lambda: revoked(only_begun), denied),
            Fault("read-only", read_only, ("recovery", "read-only"), restarts=True),
            Fault("disk full", lambda: filled(disk), ("No space left on device",)),
        ]
        await endure(site, faults, seconds, record_property)


# MongoDB


class GuardedMongoDB(MongoDB):
    """MongoDB that wants a password of whoever comes after its first user."""

    def _prepare(self) -> None:
        super()._prepare()
        key = self.folder.path / "key"
        key.write_text("headway" * 10)
        key.chmod(0o400)

    def _command(self) -> list[str]:
        return [*super()._command(), "--auth", "--keyFile", str(self.folder.path / "key")]


@dataclass(frozen=True)
class MongoSite(PatientSite):
    admin: str = ""

    async def placed(self) -> Counter[str]:
        client: MongoClient[dict[str, Any]]
        with MongoClient(self.admin) as client:
            found: list[dict[str, Any]] = client["shop"]["placed"].find().to_list()
            return Counter(str(each["order"]) for each in found)


@lasting
async def test_mongodb(
    tmp_path: Path, rabbitmq_vhost: str, seconds: float, record_property: Record
) -> None:
    rights = [{"role": "readWrite", "db": "shop"}]
    with GuardedMongoDB() as server:
        first: MongoClient[dict[str, Any]]
        with MongoClient(server.url) as first:
            first.admin.command("createUser", "root", pwd="root", roles=["root", "__system"])
        host = f"127.0.0.1:{server.port}"
        admin = f"mongodb://root:root@{host}/?directConnection=true"

        def say(*command: Any, **more: Any) -> None:
            client: MongoClient[dict[str, Any]]
            with MongoClient(admin) as client:
                client.admin.command(*command, **more)

        say("createUser", "app", pwd="secret", roles=rights)
        store = f"mongodb://app:secret@{host}/shop?directConnection=true&authSource=admin"
        site = MongoSite(tmp_path, bus=rabbitmq_vhost, store=store, admin=admin)

        @contextlib.contextmanager
        def rotated() -> Iterator[None]:
            say("updateUser", "app", pwd="another")
            server.kill()  # who is connected stays so
            server.start()
            yield
            say("updateUser", "app", pwd="secret")

        @contextlib.contextmanager
        def revoked() -> Iterator[None]:
            say("revokeRolesFromUser", "app", roles=rights)
            yield
            say("grantRolesToUser", "app", roles=rights)

        @contextlib.contextmanager
        def dropped() -> Iterator[None]:
            say("dropUser", "app")
            yield
            say("createUser", "app", pwd="secret", roles=rights)

        @contextlib.contextmanager
        def stepped_down() -> Iterator[None]:
            say("replSetStepDown", 600, force=True)
            yield
            say("replSetFreeze", 0)

        @contextlib.contextmanager
        def full() -> Iterator[None]:
            failing = ["insert", "update", "delete", "findAndModify", "commitTransaction"]
            refused = {"failCommands": failing, "errorCode": 14031}
            say("configureFailPoint", "failCommand", mode="alwaysOn", data=refused)
            yield
            say("configureFailPoint", "failCommand", mode="off")

        faults = [
            Fault("password rotated", rotated, ("Authentication failed",), restarts=True),
            Fault("role revoked", revoked, ("not authorized",)),
            Fault("user dropped", dropped, ("authenti", "not authorized", "find user")),
            Fault("stepped down", stepped_down, ("primary", "Primary")),
            Fault("disk full", full, ("failCommand", "OutOfDiskSpace")),
        ]
        await endure(site, faults, seconds, record_property)


# RabbitMQ


@lasting
async def test_rabbitmq(
    tmp_path: Path,
    rabbitmq_server: RabbitMQ,
    rabbitmq_vhost: str,
    seconds: float,
    record_property: Record,
) -> None:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    url = rabbitmq_server.create_user(rabbitmq_vhost, **everything)
    site = PatientSite(
        tmp_path, bus=url, publishes_to=rabbitmq_vhost, store=f"sqlite:///{tmp_path}/headway.db"
    )
    user, vhost = urlsplit(url).username, rabbitmq_vhost.rpartition("/")[2]

    def ask(path: str, **body: str) -> None:
        status, said = http_request(
            "PUT",
            rabbitmq_server.management_port,
            f"/api/{path}",
            body=json.dumps(body),
            login="guest:guest",
        )
        assert status in {201, 204}, said

    def cut() -> None:
        """Close what is connected; the management learns of a connection some time later."""
        said = len(site.log())

        def is_lost() -> bool:
            rabbitmq_server.close_connections()
            lost = [
                line for line in site.log()[said:].splitlines() if "lost the connection" in line
            ]
            return all(any(f"({one})" in line for line in lost) for one in ("taking", "publishing"))

        site.wait(is_lost, "the connections are lost")

    @contextlib.contextmanager
    def rotated() -> Iterator[None]:
        ask(f"users/{user}", password="another", tags="")
        cut()
        yield
        ask(f"users/{user}", password=str(user), tags="")

    @contextlib.contextmanager
    def forbidden(**rights: str) -> Iterator[None]:
        ask(f"permissions/{vhost}/{user}", **rights)
        cut()
        yield
        ask(f"permissions/{vhost}/{user}", **everything)

    @contextlib.contextmanager
    def full() -> Iterator[None]:
        rabbitmq_server.run_out_of_disk()
        try:
            yield
        finally:
            rabbitmq_server.recover_disk()

    nothing = {"configure": "", "write": "", "read": ""}
    no_writes = {**everything, "write": ""}
    faults = [
        Fault("password changed", rotated, ("does not accept the login",)),
        Fault("permissions cleared", lambda: forbidden(**nothing), ("ACCESS_REFUSED", "refuse")),
        Fault("no right to write", lambda: forbidden(**no_writes), ("ACCESS_REFUSED", "refuse")),
        Fault("disk alarm", full, ("blocked", "disk", "memory")),
    ]
    await endure(site, faults, seconds, record_property)
