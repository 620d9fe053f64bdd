"""Text from outside, made fit for one line: it must not forge another, nor fill the screen."""

_LONGEST = 500


def shown(text: str) -> str:
    r"""Give the text with everything escaped that is not plainly visible, and cut if very long.

    >>> shown("a\nERROR: all is lost")
    'a\\nERROR: all is lost'
    """
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "..."
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")
