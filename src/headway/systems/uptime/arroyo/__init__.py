"""Arroyo: results from Kafka."""
