"""What a URL says besides where the server is."""

from typing import Any

from headway.adapters.postgres.refusals import Place

_NO_CACHE = "statement_cache_size="


def options(place: Place) -> tuple[str, bool]:
    """Take our own option out of the URL: whether statements may be kept in the session."""
    base, _, query = place.url.partition("?")
    given = [part for part in query.split("&") if part]
    ours = [part for part in given if part.startswith(_NO_CACHE)]
    if any(part != f"{_NO_CACHE}0" for part in ours):
        raise place.refusal(
            f"is not accepted: {ours[0]!r} is no option",
            "statement_cache_size=0 is meant for a pooler that gives each transaction another "
            "session; leave it out otherwise",
        )
    rest = "&".join(part for part in given if part not in ours)
    return (f"{base}?{rest}" if rest else base), not ours


def named(dsn: str) -> dict[str, Any]:
    """Give what makes the server show our sessions under our name, unless the URL has another."""
    if "application_name=" in dsn:
        return {}
    return {"server_settings": {"application_name": "headway"}}
