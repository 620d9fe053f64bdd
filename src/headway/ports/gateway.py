"""Where figures are put, for processes that do not live long enough to be asked for them."""

from typing import Protocol

from headway.core.sweep_figures import SweepFigures


class Gateway(Protocol):
    """Takes figures and shows them to whoever asks."""

    async def push(self, figures: SweepFigures) -> None:
        """Replace what was shown so far, in bounded time.

        What the figures do not say is not forgotten: totals that could not be had stay as they
        are. OSError: it is away, or it refused; the message holds no secret.
        """
        ...
