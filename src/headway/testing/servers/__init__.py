"""Real servers for tests, each on a port and in a folder of its own, leaving nothing behind.

    with PostgreSQL() as postgres:
        url = postgres.create_database()

Only Linux is supported, and only programs that are installed already: `PostgreSQL.missing()` says
what is not and what installs it.
"""

from headway.testing.servers.alertmanager import Alertmanager
from headway.testing.servers.mongodb import MongoDB
from headway.testing.servers.mongodb_set import MongoReplicaSet
from headway.testing.servers.pgbouncer import PgBouncer
from headway.testing.servers.postgres import PostgreSQL
from headway.testing.servers.process import wait_until
from headway.testing.servers.prometheus import Prometheus
from headway.testing.servers.pushgateway import Pushgateway
from headway.testing.servers.rabbitmq import RabbitMQ
from headway.testing.servers.redis import Redis
from headway.testing.servers.server import Server, ServerError

__all__ = [
    "Alertmanager",
    "MongoDB",
    "MongoReplicaSet",
    "PgBouncer",
    "PostgreSQL",
    "Prometheus",
    "Pushgateway",
    "RabbitMQ",
    "Redis",
    "Server",
    "ServerError",
    "wait_until",
]
