"""Python runs this first in every process of a test that sets the wall clock.

The wall clock is the real one plus the seconds in a file, read each time: so a test can set the
clocks of all its processes while they run. The steady clocks of the machine stay as they are.
"""

import os
import time
from pathlib import Path

_STEP = Path(os.environ["WALL_CLOCK_STEP"])
_real = time.time


def _stepped() -> float:
    return _real() + float(_STEP.read_text())


time.time = _stepped
