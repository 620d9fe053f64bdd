"""The way to the database: one client, made when it is first needed and by whoever needs it.

A client belongs to the event loop in which it was made. What cannot work is refused at the first
contact, with the cure: a server without transactions, a login that is wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, IndexModel, ReadPreference, WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError as UnusableError
from pymongo.errors import ConnectionFailure, OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from headway.adapters.mongodb.naming import DONE, HELD, LEASES, NOTES, checked
from headway.adapters.mongodb.values import Raw
from headway.core.errors import ConfigurationError
from headway.core.failure import words
from headway.core.secrets import hidden, shown_url

Collection = AsyncCollection[Raw]
Database = AsyncDatabase[Raw]

SAFE = WriteConcern("majority", wtimeout=10_000, j=True)
"""Stored for good: it outlives any server that a majority outlives."""
SEEN = ReadConcern("majority")
"""Nothing is read that the loss of a server could undo."""
_CODECS: CodecOptions[Raw] = CodecOptions(
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)
RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, tz_aware=True)
"""Byte for byte: other clients know types that we do not."""
_OLDEST = 13
"""The wire version of MongoDB 5.0: the first that can set fields of any name."""
_USUAL: dict[str, Any] = {
    "appname": "headway",
    "connecttimeoutms": 5_000,
    "serverselectiontimeoutms": 5_000,
}
_ASKED_ONCE = 1.0
"""Seconds. Nobody is there, and finding out took long: whoever asks so soon is told the same."""
_EXISTS = 48
_REFUSES = frozenset({13, 18, 8000})
"""Unauthorized, AuthenticationFailed, and Atlas's word for both."""
_INDEXES = {
    DONE: [
        IndexModel([("ended", 1), ("at", 1)], name="ended"),
        IndexModel([("operation", 1)], name="operation"),
        IndexModel([("at", 1)], name="unsent", partialFilterExpression={"unsent": True}),
        IndexModel([("letter", 1)], name="letter", partialFilterExpression={"letter": {"$gt": ""}}),
        IndexModel([("again", 1)], name="again", sparse=True),
    ],
    HELD: [IndexModel([("by", 1)], name="by"), IndexModel([("at", 1)], name="at")],
    LEASES: [IndexModel([("until", 1)], name="over", expireAfterSeconds=24 * 3600)],
    NOTES: [IndexModel([("at", -1), ("seq", -1)], name="newest")],
}


P = ParamSpec("P")
T = TypeVar("T")
_FORGOTTEN = "requires authentication"


def logs_in_again(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Have a method with a `_link` use new connections after the server forgot the user.

    It does if somebody removes the user and makes it anew. Connections that are open stay so, and
    the driver never logs in again on them.
    """

    @wraps(method)
    async def call(*args: P.args, **named: P.kwargs) -> T:
        try:
            return await method(*args, **named)
        except OperationFailure as error:
            if error.code in _REFUSES and _FORGOTTEN in str(error):
                link: Link = vars(args[0])["_link"]
                link.renew()
            raise

    return call


class Link:
    """One client, and what has been made sure of over it."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self.database_name = unquote(urlsplit(url).path.removeprefix("/"))
        self._lock = asyncio.Lock()
        self._client: AsyncMongoClient[Raw] | None = None
        self._former: list[AsyncMongoClient[Raw]] = []
        self._options = {name.lower() for name, _ in parse_qsl(urlsplit(url).query)}
        self._is_fit = False
        self._away = ""
        self._is_closed = False
        self._known: set[str] = set()
        """Collections that exist."""
        if not self.database_name:
            raise self._refused(
                "it names no database", "use mongodb://USER:PASSWORD@HOST:PORT/DATABASE"
            )

    async def client(self) -> AsyncMongoClient[Raw]:
        """Give the client, once the server has been found fit."""
        if self._client is None or not self._is_fit:
            async with self._lock:
                await self._connect()
        assert self._client is not None  # noqa: S101 (made a line above)
        return self._client

    async def ours(self, name: str) -> Collection:
        """Give one of our own collections; it is made if it is not there."""
        database = await self._database()
        if name not in self._known:
            await self._make(database, name)
        return database.get_collection(name)

    async def theirs(self, name: str) -> Collection:
        """Give a collection of the user's."""
        return (await self._database()).get_collection(checked(self.database_name, name))

    async def shown(self, name: str) -> Collection:
        """Give a collection of the user's as the URL says that it is to be read."""
        collection = (await self.client()).get_database(self.database_name, codec_options=_CODECS)
        concern = None if "readconcernlevel" in self._options else SEEN
        return collection.get_collection(
            checked(self.database_name, name), read_concern=concern, write_concern=SAFE
        )

    async def whole(self) -> Database:
        """Give the database as the user set it up, for statements of their own."""
        return (await self.client()).get_database(self.database_name)

    async def make_sure(self, *names: str) -> None:
        """Have collections made: inside a transaction, two who make one are in each other's way."""
        for name in set(names) - self._known:
            checked(self.database_name, name)
            await self._make(await self._database(), name)

    def renew(self) -> None:
        """Use connections of a new client from now on."""
        if self._client is not None and self._is_fit:
            # Others may be waiting for an answer over the old one.
            self._former.append(self._client)
            self._client, self._is_fit = None, False

    async def close(self) -> None:
        """Let go of the server."""
        self._is_closed = True
        for client in (*self._former, self._client):
            if client is not None:
                await client.close()

    async def _database(self) -> Database:
        return (await self.client()).get_database(
            self.database_name,
            codec_options=_CODECS,
            read_preference=ReadPreference.PRIMARY,
            read_concern=SEEN,
            write_concern=SAFE,
        )

    async def _connect(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"the store {shown_url(self._url)!r} is closed")
        if self._is_fit:
            return
        if self._away:
            raise ConnectionError(self._away)
        try:
            if self._client is None:
                self._client = self._made()
            await self._check(self._client)
        except (UnusableError, ValueError) as error:
            if isinstance(error, ConfigurationError):
                raise
            raise self._refused(hidden(str(error)), "see the options of MongoDB's URLs") from None
        except ConnectionFailure as error:
            raise ConnectionError(self._took_long(words(error))) from error
        except OperationFailure as error:
            if error.code not in _REFUSES:
                raise
            raise self._refused(
                "the server refuses the login", "check user, password and authSource"
            ) from error
        self._is_fit = True
        await self._close_former()

    async def _close_former(self) -> None:
        while len(self._former) > 1:  # over the last of them, somebody may still get an answer
            await self._former.pop(0).close()

    def _took_long(self, why: str) -> str:
        """Say that nobody answers; for a moment, whoever else asks hears it at once."""
        cure = f"is it running, and is {self._name} right?"
        self._away = f"{shown_url(self._url)}: {hidden(why)}; {cure}"
        asyncio.get_running_loop().call_later(_ASKED_ONCE, self._forget)
        return self._away

    def _forget(self) -> None:
        self._away = ""

    def _made(self) -> AsyncMongoClient[Raw]:
        if self._url.startswith("mongodb://"):
            parse_uri(self._url, warn=False)  # or a misspelt option would only be a warning
        usual = {name: value for name, value in _USUAL.items() if name not in self._options}
        return AsyncMongoClient(self._url, retryWrites=True, **usual)

    async def _check(self, client: AsyncMongoClient[Raw]) -> None:
        hello = await client.admin.command("hello")
        if hello["maxWireVersion"] < _OLDEST:
            version = (await client.admin.command("buildInfo"))["version"]
            raise self._refused(f"this is MongoDB {version}", "use 5.0 or newer")
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise self._refused(
                "this server is no member of a replica set, so it has no transactions",
                "start mongod with --replSet NAME and call rs.initiate() once; one member will do",
            )

    async def _make(self, database: Database, name: str) -> None:
        try:
            await database.command({"create": name})
        except OperationFailure as error:
            if error.code in _REFUSES:
                raise self._refused(
                    f"the user may not make the collection {name!r}",
                    f"grant readWrite on {self.database_name!r}",
                ) from error
            if error.code != _EXISTS:
                raise
        if name in _INDEXES:
            await database.get_collection(name).create_indexes(_INDEXES[name])
        self._known.add(name)

    def _refused(self, why: str, cure: str) -> ConfigurationError:
        value = shown_url(self._url)
        return ConfigurationError(f"{self._name}={value!r} is not accepted: {why}; {cure}")
