"""What a sweeper and an operator need, on one file."""

from headway.adapters.sqlite.candidates import SqliteCandidates
from headway.adapters.sqlite.desk import SqliteDesk
from headway.adapters.sqlite.leases import SqliteLeases
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.timeline import Timeline
from headway.adapters.sqlite.totals import SqliteTotals
from headway.adapters.sqlite.writer import Writer
from headway.ports.engine import Sweeping


def sqlite_sweeping(writer: Writer, readers: Readers, time: Timeline) -> Sweeping:
    return Sweeping(
        candidates=SqliteCandidates(writer, readers),
        desk=SqliteDesk(writer, readers),
        leases=SqliteLeases(writer, readers, time),
        totals=SqliteTotals(writer),
    )
