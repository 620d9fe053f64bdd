"""What the exit codes mean."""

NOT_AS_PROMISED = 1
CANNOT_GO_ON = 2
UNAVAILABLE = 3
NOT_KNOWN = 4
INTERRUPTED = 130
OUTPUT_CLOSED = 141
TERMINATED = 143

MEANINGS = {
    0: "done",
    NOT_AS_PROMISED: "what you asked about is not well: see the table below",
    CANNOT_GO_ON: "wrong use or settings: an option, a name, a file, a login or the module of a "
    "service has to be corrected, or the output could not be written. Nothing was changed, or the "
    "message says what",
    UNAVAILABLE: "the engine is unavailable: the bus or the store does not answer. The same "
    "command may succeed later",
    NOT_KNOWN: "it cannot be known: `headway verify` on RabbitMQ without a list or a store, or on "
    "an engine on which no service has run and nothing was published",
    INTERRUPTED: "Ctrl-C, with a line that says how far it got",
    OUTPUT_CLOSED: "the program that read the output is gone (`headway failed export shop | head "
    "-1`). A change is complete and recorded all the same",
    TERMINATED: "SIGTERM, with a line that says how far it got. Services that run until they are "
    "told to stop end with 0",
}

NOT_WELL = {
    "consensus ingest": "something ended in a failed queue, or is still pending",
    "consensus search": "no message matches",
    "consensus summary": "there is no summary (yet)",
    "demo": "the demo did not end as promised",
    "documents": "some documents were refused or not found; or you answered no",
    "failed": "some dead letters were skipped or not found; or you answered no",
    "ledger load": "answers and database differ",
    "order drain": "some keys hold nothing or are unknown; or you answered no",
    "run": "a worker did not stop within its grace and was ended by force, with `--workers` or "
    "without",
    "sweep --once": "the run failed in part; the log says why",
    "unrouted": "some types have no queue yet or no unrouted events; or you answered no",
    "uptime run": "as `run`",
    "uptime checks": "there is no such subscription",
    "verify": "something is missing, in two places, or was never accepted",
}
"""What code 1 means, by command."""
