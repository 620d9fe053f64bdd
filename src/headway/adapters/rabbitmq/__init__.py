"""The bus and the failed queues on RabbitMQ, by pika."""
