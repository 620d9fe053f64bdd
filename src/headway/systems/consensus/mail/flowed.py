"""Text of format=flowed (RFC 3676): lines that end with a space go on in the next one."""

_SIGNATURE = "-- "


def unflowed(text: str, *, delete_space: bool = False) -> str:
    r"""Join lines that belong together; quotations keep their depth.

    >>> unflowed("one \ntwo\n>> old \n>> text\n")
    'one two\n>> old text\n'
    """
    result: list[str] = []
    pieces: list[str] = []
    depth_before = 0
    for line in text.split("\n"):
        rest = line.lstrip(">")
        depth = len(line) - len(rest)
        rest = rest.removeprefix(" ")
        flows = rest.endswith(" ") and rest != _SIGNATURE
        if pieces and (depth != depth_before or rest == _SIGNATURE):
            _end(result, pieces, depth_before)
        pieces.append(rest[:-1] if flows and delete_space else rest)
        depth_before = depth
        if not flows:
            _end(result, pieces, depth)
    if pieces:
        _end(result, pieces, depth_before)
    return "\n".join(result)


def _end(result: list[str], pieces: list[str], depth: int) -> None:
    mark = ">" * depth + " " if depth else ""
    result.append(mark + "".join(pieces))
    pieces.clear()
