"""How `headway` is called here, for the commands that people are to paste."""

import shlex
import shutil
import sys
from pathlib import Path

from headway.core.secrets import shown_url

_NAME = "headway"
_SHORT = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def own_name() -> str:
    """Give the command as it was called, if the shell would not find it by its name alone."""
    called = Path(sys.argv[0])
    found = shutil.which(_NAME)
    if called.name != _NAME or not called.is_file():
        return _NAME
    if found is not None and called.samefile(found):
        return _NAME
    return shlex.quote(str(called))


def pasteable(*words: str) -> str:
    """Write a command of ours so that a shell reads exactly these words, on one visible line."""
    return " ".join([own_name(), *map(_quoted, words)])


def bus_words(bus: str | None) -> list[str]:
    """Repeat the option --bus as it was typed, without a password on the screen."""
    if bus is None:
        return []
    return ["--bus", bus if shown_url(bus) == bus else "URL"]


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"  # as bash, zsh and ksh read it


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    return character if character.isprintable() else f"\\U{ord(character):08x}"
