"""One suite for each port, for every engine: what the ports promise, as tests.

An engine's own tests give a fixture named `harness` (see `conformance.harness`) and a subclass of
each suite:

    class TestBus(BusConformance): ...

and so on: BusConformance, CommitConformance, RecordsConformance, DocumentsConformance,
LettersConformance, PlacesConformance, UnroutedConformance, HistoryConformance, each in the module
of its name. For an engine with a store also CandidatesConformance, DeskConformance,
LeasesConformance and TotalsConformance; and LockedConformance where others can lock single
documents.

The methods are plain coroutines: run them with pytest-asyncio in its automatic mode.
"""

import contextlib
import pkgutil

with contextlib.suppress(ImportError):
    import pytest

    # Done here, before any suite is imported: then a failed assert shows what it compared.
    pytest.register_assert_rewrite(
        *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
    )
