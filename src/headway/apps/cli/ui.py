"""`headway ui`: pages for people."""

from pathlib import Path
from typing import Annotated

import typer

from headway.apps.cli.logs import LogFormat, use_level, write_logs
from headway.apps.cli.options import LogLevelOption
from headway.assembly.settings import (
    DEFAULT_ERRORS,
    ERRORS,
    UI_TOKEN,
    environment,
    ui_hosts,
    ui_token,
)


def ui(
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help=f"Address to listen on; beyond this machine only with {UI_TOKEN} set.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, max=65_535, help="Port; 0 takes any.")
    ] = 8081,
    errors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"Where errors are kept. [default: {ERRORS}, or {DEFAULT_ERRORS}]"
        ),
    ] = None,
    log_level: LogLevelOption = None,
) -> None:
    """Serve the page of errors (/ui), and take reports of errors (POST /api/errors)."""
    from headway.apps.web.serving import serve  # noqa: PLC0415 (a fast start of the others)

    use_level(log_level)
    write_logs(LogFormat.AUTO)
    serve(
        host=host,
        port=port,
        errors=errors or Path(environment().get(ERRORS) or DEFAULT_ERRORS),
        token=ui_token(),
        hosts=ui_hosts(),
    )
