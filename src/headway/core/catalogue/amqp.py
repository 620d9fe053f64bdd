"""RabbitMQ: pika, and aiormq beneath aio-pika."""

from headway.core.classify import Rule
from headway.core.failure import Verdict

RULES = (
    Rule(
        name="amqp.credentials",
        verdict=Verdict.PERMANENT,
        error_type="CREDENTIALS_REFUSED",
        types=frozenset(
            {
                "pika.exceptions.AuthenticationError",
                "pika.exceptions.ProbableAccessDeniedError",
                "pika.exceptions.ProbableAuthenticationError",
                "aiormq.exceptions.AuthenticationError",
                "aiormq.exceptions.ProbableAuthenticationError",
            }
        ),
    ),
    Rule(
        name="amqp.permission",
        verdict=Verdict.PERMANENT,
        error_type="PERMISSION_DENIED",
        types=frozenset({"aiormq.exceptions.ChannelAccessRefused"}),
    ),
    Rule(
        name="amqp.permission_by_code",
        verdict=Verdict.PERMANENT,
        error_type="PERMISSION_DENIED",
        types=frozenset({"pika.exceptions.ChannelClosedByBroker"}),
        at=("reply_code",),
        codes=frozenset({403}),
    ),
    Rule(
        name="amqp.refused",
        verdict=Verdict.PERMANENT,
        error_type="BROKER_REFUSED",
        types=frozenset(
            {
                "pika.exceptions.UnroutableError",
                "aiormq.exceptions.ChannelNotFoundEntity",
                "aiormq.exceptions.ChannelPreconditionFailed",
            }
        ),
    ),
    Rule(
        name="amqp.refused_by_code",
        verdict=Verdict.PERMANENT,
        error_type="BROKER_REFUSED",
        types=frozenset({"pika.exceptions.ChannelClosedByBroker"}),
        at=("reply_code",),
        codes=frozenset({404, 406}),
    ),
    Rule(
        name="amqp.connection",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset(
            {
                "pika.exceptions.AMQPConnectionError",
                "pika.exceptions.AMQPChannelError",
                "pika.exceptions.NackError",
                "aiormq.exceptions.AMQPConnectionError",
                "aiormq.exceptions.AMQPChannelError",
                "aiormq.exceptions.DeliveryError",
            }
        ),
    ),
)
