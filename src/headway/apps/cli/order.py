"""`headway order`: results that wait for their turn, and what is decided about them."""

from typing import TYPE_CHECKING, Annotated

import typer

from headway.apps.cli.options import (
    DryRunOption,
    HistoryLimitOption,
    JsonOption,
    RawOption,
    ReasonOption,
    YesOption,
    not_empty,
)
from headway.core.sequence_settings import DEFAULT_NAME

if TYPE_CHECKING:
    from headway.apps.cli.sequences import Which

app = typer.Typer(help="Order: results that wait for their turn.", no_args_is_help=True)

NameOption = Annotated[
    str, typer.Option(metavar="NAME", help="The name of the resequencer: Resequencer(name=...).")
]
SequencesOption = Annotated[
    str | None,
    typer.Option(
        "--sequences",
        metavar="URL",
        help="Where they are. [default: for uptime UPTIME_SEQUENCES or UPTIME_STORE, for all "
        "others HEADWAY_SEQUENCES or the SQLite file of HEADWAY_BUS]",
        callback=not_empty,
    ),
]
SettingsOption = Annotated[
    str | None,
    typer.Option(
        "--settings",
        metavar="MODULE:NAME",
        help="The SequenceSettings of the resequencer, if they are its own. [default: UPTIME_* "
        "for uptime, the usual ones for all others]",
    ),
]


@app.command()
def status(  # noqa: PLR0917 (typer gives them by name)
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="Only this key, whatever it holds.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="At most so many, the first due first.")
    ] = 20,
    name: NameOption = DEFAULT_NAME,
    sequences: SequencesOption = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which keys hold results: what each expects, holds and misses, and until when."""
    from headway.apps.cli.order_looking import show_status  # noqa: PLC0415 (a fast start)

    show_status(_which(name, sequences, settings), key, limit=limit, machine=as_json)


@app.command()
def explain(  # noqa: PLR0917 (typer gives them by name)
    key: Annotated[str, typer.Argument(metavar="KEY", help="Such as a subscription's id.")],
    contents: Annotated[
        bool, typer.Option("--contents", help="With what is in the held results.")
    ] = False,
    raw: RawOption = False,
    name: NameOption = DEFAULT_NAME,
    sequences: SequencesOption = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say in words why the results of a key wait, since when, what happens next, and when."""
    from headway.apps.cli.order_looking import show_one  # noqa: PLC0415 (a fast start)

    show_one(_which(name, sequences, settings), key, contents=contents, machine=as_json, raw=raw)


@app.command()
def drain(  # noqa: PLR0917 (typer gives them by name)
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="Only these keys.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All keys that stand before a gap.")
    ] = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    name: NameOption = DEFAULT_NAME,
    sequences: SequencesOption = None,
    settings: SettingsOption = None,
) -> None:
    """Stop waiting: what is missing is given up now, what is held is released in order; asks first.

    Exit code 1: some of the keys hold nothing, or are not known.
    """
    from headway.apps.cli.order_deciding import drain_keys  # noqa: PLC0415 (a fast start)

    which = _which(name, sequences, settings)
    drain_keys(which, keys, everything=everything, reason=reason, dry_run=dry_run, ask=not yes)


@app.command()
def history(
    limit: HistoryLimitOption = 20,
    name: NameOption = DEFAULT_NAME,
    sequences: SequencesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who drained keys, when, which and why.

    The newest 10,000 changes are kept beside the sequences: in the SQLite file, or in Redis.
    """
    from headway.apps.cli.order_looking import show_history  # noqa: PLC0415 (a fast start)

    show_history(_which(name, sequences, None), limit=limit, machine=as_json)


def _which(name: str, sequences: str | None, settings: str | None) -> "Which":
    from headway.apps.cli.sequences import Which  # noqa: PLC0415 (a fast start)

    return Which(url=sequences, name=name, settings=settings)
