"""How `headway` is called here, for the commands that people are to paste."""

import shlex
import shutil
import sys
from pathlib import Path

_NAME = "headway"


def own_name() -> str:
    """Give the command as it was called, if the shell would not find it by its name alone."""
    called = Path(sys.argv[0])
    found = shutil.which(_NAME)
    if called.name != _NAME or not called.is_file():
        return _NAME
    if found is not None and called.samefile(found):
        return _NAME
    return shlex.quote(str(called))
