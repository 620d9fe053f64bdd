"""Which server it is, and what is wrong with it: in words, and never with the password."""

import ssl
from dataclasses import dataclass, field
from typing import TypeGuard

import asyncpg

from headway.core.catalogue import DEFAULT_CLASSIFIER, names_engine
from headway.core.errors import ConfigurationError
from headway.core.failure import Verdict, words
from headway.core.secrets import hidden, shown_url

CONFLICT = "OC000_TRANSACTION_CONFLICT"
_LOST = "CONNECTION_ERROR"
_OF_VALUES = ("22", "23", "44", "54", "P0")
"""Classes of SQLSTATEs that a value brings about: what it is, how large, or what a constraint or a
trigger of the user's own thinks of it."""
_CLIENT = asyncpg.InterfaceError | asyncpg.InternalClientError


@dataclass(frozen=True, slots=True)
class Place:
    """The server and database of a URL."""

    url: str = field(repr=False)

    @property
    def shown(self) -> str:
        return shown_url(self.url)

    def refusal(self, wrong: str, cure: str) -> ConfigurationError:
        """Say why it cannot be used, and what would help."""
        return ConfigurationError(f"HEADWAY_STORE={self.shown!r} {wrong}; {cure}")

    def explained(self, error: Exception, within: float) -> Exception:
        """Give what to raise instead of an error of the driver's; mostly the error itself."""
        if isinstance(error, TimeoutError):
            return ConnectionError(f"{self.shown} did not answer within {within:g} s")
        if DEFAULT_CLASSIFIER.classify(error).error_type != _LOST:
            return error
        said = hidden(" ".join(words(error).split())) or type(error).__name__
        return ConnectionError(f"no connection to {self.shown}: {said}")

    def away(self, error: Exception, within: float) -> Exception:
        """Likewise for an error met while connecting: then a person may have to start it."""
        explained = self.explained(error, within)
        if explained is error:
            return error
        return ConnectionError(f"{explained}; is it running, and is HEADWAY_STORE right?")

    def explained_at_start(self, error: Exception, within: float) -> Exception:
        """Likewise for what no waiting would cure."""
        if isinstance(error, ConfigurationError):
            return error
        code = getattr(error, "sqlstate", None) or ""
        said = hidden(words(error))
        for codes, wrong, cure in _HOPELESS:
            if code.startswith(codes):
                return self.refusal(f"{wrong} ({said})", cure)
        if isinstance(error, ValueError | ssl.SSLCertVerificationError):
            return self.refusal(f"is not accepted: {said}", _FORM)
        return self.away(error, within)


_FORM = "use postgresql://USER:PASSWORD@HOST:PORT/DATABASE and options that asyncpg knows"
_LOGIN = (
    "correct user and password in the URL (a special character is written as %XX), or the server's "
    "pg_hba.conf"
)
_RIGHTS = (
    "grant it CREATE on the first schema of its search path; or open the store once as a user who "
    "may, and grant this one SELECT, INSERT, UPDATE and DELETE on them"
)
_OPTIONS = "correct it, or leave it out: what asyncpg does not know is set on the server"
PRIMARY = "name the primary server, or add target_session_attrs=read-write to the URL"
_HOPELESS = (
    (("28",), "is refused by the server", _LOGIN),
    (("3D000",), "names a database that is not there", "make it with createdb, or name another"),
    (("42501", "3F000"), "does not let this user make or use the tables headway_*", _RIGHTS),
    (("25006",), "takes no writes", PRIMARY),
    (("42704", "22023"), "has an option that the server refuses", _OPTIONS),
)
"""SQLSTATEs, what is wrong, and the cure."""


def is_conflict(error: Exception) -> bool:
    """Say whether a transaction lost against another one, and certainly did nothing."""
    if not isinstance(error, asyncpg.PostgresError):
        return False
    return DEFAULT_CLASSIFIER.classify(error).error_type == CONFLICT


def is_of_server(error: Exception) -> bool:
    """Say whether the server had no room or was ended: nobody's fault, and it passes."""
    diagnosis = DEFAULT_CLASSIFIER.classify(error)
    matched = diagnosis.rule != "unmatched" and diagnosis.verdict is not Verdict.PERMANENT
    return matched and diagnosis.error_type != CONFLICT


def is_of_values(error: Exception) -> bool:
    """Tell values that cannot be stored from trouble with the server, which is nobody's fault."""
    if names_engine(error):
        return False
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_OF_VALUES)
    if isinstance(error, _CLIENT):
        return isinstance(error, ValueError)
    return not isinstance(error, OSError)  # of which a TimeoutError is one


def is_of_driver(error: BaseException) -> TypeGuard[Exception]:
    """Say whether asyncpg or the network raised this, and nobody in between."""
    return isinstance(error, asyncpg.PostgresError | OSError | _CLIENT)


def is_of_connection(error: BaseException) -> bool:
    """Say whether nobody knows any more in which state the connection is."""
    if isinstance(error, _CLIENT):
        return not isinstance(error, ValueError)
    return isinstance(error, OSError) or not isinstance(error, Exception)
