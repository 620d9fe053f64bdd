"""One RabbitMQ server, and in a process of its own each who is measured on it."""
