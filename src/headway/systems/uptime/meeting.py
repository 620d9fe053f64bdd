"""The engine of sequences is met before any worker begins: what is wrong with it is said at once.

A worker only says so when its patience is over, which is long after whoever started it has left.
"""

import asyncio
import logging
from datetime import timedelta

from headway import ConfigurationError
from headway.engines import open_sequences
from headway.errors import is_unavailable
from headway.logs import shown
from headway.settings import SqliteUrl, read_sequences_url, shown_url
from headway.systems.uptime.opening import FAMILY
from headway.systems.uptime.settings import PREFIX, UptimeSettings

_LOG = logging.getLogger("headway")
_ANSWERS_WITHIN = timedelta(seconds=3)


async def meet_sequences(settings: UptimeSettings, within: timedelta = _ANSWERS_WITHIN) -> None:
    """Warn if the engine is away: results go on without it. Refuse one that will not serve us."""
    url = settings.sequences_url
    if isinstance(read_sequences_url(f"{PREFIX}SEQUENCES", url), SqliteUrl):
        return  # nobody can be away
    sequences = open_sequences(url, family=FAMILY, settings=settings.order())
    try:
        async with asyncio.timeout(within.total_seconds()):
            await sequences.due(0)
    except Exception as error:
        if not is_unavailable(error):
            raise ConfigurationError(
                f"{PREFIX}SEQUENCES={shown_url(url)!r} is not accepted: who answers there does not "
                f"serve this ({shown(str(error))}); name a Redis, with its user and password"
            ) from error
        why = str(error) or f"no answer within {within.total_seconds():g} s"
        _LOG.warning(
            "The engine of sequences at %s cannot be reached (%s): results wait %g s for it, and "
            "then go on without their order until it answers; look whether it runs, and at "
            "--sequences",
            shown_url(url),
            shown(why),
            settings.patience.total_seconds(),
        )
    finally:
        await sequences.close()
