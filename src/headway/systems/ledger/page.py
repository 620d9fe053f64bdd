"""The description of the API as one page for people, which needs nothing from anywhere else."""

import html
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from headway.systems.ledger.events import IDENTIFIER, IDENTIFIER_IN_WORDS
from headway.systems.ledger.page_frame import FRAME

_GOOD = "2"


def page(document: Mapping[str, Any], url: str) -> str:
    """Write the page; `url` is where its reader found the service."""
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    example = next(body for *_, operation in operations if (body := _body_of(operation)))
    return FRAME.format(
        title=html.escape(document["info"]["title"]),
        about=_text(document["info"]["description"]),
        curl=html.escape(_curl(url, example)),
        operations="".join(_operation(*each) for each in operations),
        shapes="".join(_shape(*each) for each in document["components"]["schemas"].items()),
        identifier=html.escape(IDENTIFIER_IN_WORDS),
    )


def _curl(url: str, example: object) -> str:
    address = shlex.quote(f"{url.rstrip('/')}/api/v1/events")
    return (
        f"curl -i {address} \\\n  -H 'Idempotency-Key: my-key-1' \\\n"
        f"  -d {shlex.quote(json.dumps(example, indent=2))}"
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    said = operation.get("description") or operation["summary"]
    return (
        f"<section><h3><code>{method.upper()} {html.escape(path)}</code></h3>"
        + "".join(f"<p>{_text(part)}</p>" for part in said.split("\n\n"))
        + _parameters(operation.get("parameters", ()))
        + _request(_body_of(operation))
        + "<h4>Answers</h4><dl>"
        + "".join(_answer(*each) for each in operation["responses"].items())
        + "</dl></section>"
    )


def _parameters(parameters: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"<code>{html.escape(each['name'])}</code>",
            html.escape(_place(each)),
            _text(each.get("description", "")),
        )
        for each in parameters
    ]
    return _table(("parameter", "where", "meaning"), rows) if rows else ""


def _place(parameter: Mapping[str, Any]) -> str:
    return f"{parameter['in']}{'' if parameter.get('required') else ', optional'}"


def _body_of(operation: Mapping[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("example")


def _request(example: object) -> str:
    if example is None:
        return ""
    return (
        f'<h4>Body</h4>{_json(example)}<p>See <a href="#shapes">the shapes of the events</a>.</p>'
    )


def _answer(status: str, answer: Mapping[str, Any]) -> str:
    examples = [each["example"] for each in answer["content"].values() if "example" in each]
    shown = "".join(map(_json, examples))
    if not status.startswith(_GOOD):
        shown = f"<details><summary>example</summary>{shown}</details>"
    return f"<dt>{html.escape(status)}</dt><dd>{_text(answer['description'])}{shown}</dd>"


def _shape(name: str, shape: Mapping[str, Any]) -> str:
    required = shape.get("required", ())
    rows = [
        (
            f"<code>{html.escape(field)}</code>",
            _type(of) + ("" if field in required else ", optional"),
            _meaning(of),
        )
        for field, of in shape["properties"].items()
    ]
    fields = _table(("field", "type", "meaning"), rows)
    return (
        f'<section id="{html.escape(name)}"><h3>{html.escape(name)}</h3>'
        f"<p>{_text(shape['description'])}</p>{fields}</section>"
    )


def _type(of: Mapping[str, Any]) -> str:
    """Say the type and its bounds as a person would."""
    match of:
        case {"enum": [only]}:
            return f"<code>{html.escape(json.dumps(only))}</code>"
        case {"pattern": pattern} if pattern == IDENTIFIER:
            return "id"
        case {"format": "date-time"}:
            return "time, such as <code>2026-11-15T12:00:00Z</code>"
        case {"type": "string", "minLength": least, "maxLength": most}:
            return f"text, {least} to {most} characters"
        case {"type": "integer", "minimum": least, "maximum": most}:
            # A no-break space keeps a large number on one line.
            return f"whole number, {_grouped(least)} to {_grouped(most)}"
        case _:
            return html.escape(str(of.get("type", "object")))


def _grouped(number: int) -> str:
    return str(number) if number < 10_000 else f"{number:,}".replace(",", "&nbsp;")  # noqa: PLR2004 (a year stays as it is)


def _meaning(of: Mapping[str, Any]) -> str:
    match of:
        case {"$ref": reference}:
            name = html.escape(reference.rpartition("/")[2])
            return f'What happened: <a href="#{name}">{name}</a>'
        case {"enum": _}:
            return "Tells the events apart"
        case _:
            return _text(of.get("description", ""))


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{each}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(words: str) -> str:
    """Escape a text and set what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(words))


def _json(value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, indent=2)
    return f"<pre>{html.escape(shown)}</pre>"
